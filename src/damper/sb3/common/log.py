"""Losses and diagnostics of one call of ``train``; a GPU is read once, at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from damper.rules import GradientReport


class Log:
    """Scalars by name, one per gradient step; those on a device are left there until ``write``."""

    def __init__(self) -> None:
        """Make an empty log."""
        self.values: dict[str, list[Tensor | float]] = {}
        self.means: set[str] = {"auxiliary_loss"}

    def add(self, **scalars: Tensor) -> None:
        """Append one value to each of these names."""
        for name, value in scalars.items():
            seen = value.item() if value.device.type == "cpu" else value.detach().reshape(())
            self.values.setdefault(name, []).append(seen)

    def add_report(self, report: GradientReport) -> None:
        """Append a rule's diagnostics: cosine, conflicts, ..."""
        logged = report.logged()
        self.means |= logged.keys()
        self.add(**logged)

    def write(self, logger: Any) -> None:
        """Record means under ``train/``; the only wait for the device.

        SB3's own entries show the last call of ``train``, as in SB3; the method's are means since
        the last dump, so that conflicts become a rate.
        """
        waiting = [
            v.double() for values in self.values.values() for v in values if isinstance(v, Tensor)
        ]
        numbers = iter(torch.stack(waiting).tolist() if waiting else ())
        for name, values in self.values.items():
            mean = float(
                np.mean([next(numbers) if isinstance(value, Tensor) else value for value in values])
            )
            record = logger.record_mean if name in self.means else logger.record
            record(f"train/{name}", mean)
