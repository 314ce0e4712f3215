"""Training metrics for TensorBoard, a run per group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from damper.engine.groups import groups, mean
from damper.engine.settings import Settings
from damper.errors import MissingExtraError


class TensorBoard:
    """A listener of the trainer that writes each group's means under ``folder``."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """Needs the ``tensorboard`` extra."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError('tensorboard needs its package: pip install "damper-rl[tensorboard]".') from error
        self.groups = groups(settings.agents())
        self.writers = {label: SummaryWriter(str(folder / label.replace(" ", "_"))) for label in self.groups}

    def __call__(self, line: dict[str, Any]) -> None:
        """Write one metrics line."""
        for label, members in self.groups.items():
            for name, values in line.items():
                if isinstance(values, list) and name != "frozen":
                    value = mean(values, members)
                    if value is not None:
                        self.writers[label].add_scalar(f"train/{name}", value, line["step"])
            self.writers[label].add_scalar("train/steps_per_second", line["steps_per_second"], line["step"])
            self.writers[label].flush()
