"""Settings that follow a schedule: tensors on the device that the host sets before an update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from damper.engine.device.transfers import Upload
from damper.schedules import value_at


class Scheduled:
    """Tensors ``[P]`` by setting name, changed in place because CUDA graphs and compiled code read them."""

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], device: torch.device, dtype: torch.dtype
    ) -> None:
        """``columns``: for each setting, every agent's schedule or number (``Settings.scheduled``)."""
        self._columns = columns
        self.values: dict[str, list[float]] = {}  # of the last ``set``, for the log
        shape = len(columns), len(next(iter(columns.values())))
        self._staged = Upload(shape, device, dtype)
        self._device_values = torch.zeros(*shape, device=device, dtype=dtype)
        self.tensors = dict(zip(columns, self._device_values.unbind(), strict=True))
        self._remaining: float | None = None
        self.set(1.0)

    def set(self, progress_remaining: float) -> None:
        """Send the values at this point of the run (1 at its start, 0 at its end) to the device for the next update."""
        if progress_remaining == self._remaining:
            return
        self._remaining = progress_remaining
        self.values = {
            name: [value_at(one, progress_remaining) for one in column]
            for name, column in self._columns.items()
        }
        self._staged.host_buffer()[...] = list(self.values.values())
        self._staged.send(self._device_values)
        self._staged.record_event()
