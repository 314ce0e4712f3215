"""Small arrays between host and device at every step, without waiting for whatever else the device was asked to do.

A plain copy waits until the device is done with everything before it. These go through page-locked memory, in order
with the device's work, and wait only where a number is needed. The copies themselves can be captured in a CUDA
graph; ``mark`` is called after it was launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


class _Staging:
    """Host memory of a fixed shape, and the moment when the last copy from or to it is through."""

    def __init__(
        self,
        shape: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        through: torch.cuda.Event | None = None,
    ) -> None:
        """``through`` is given where another one's moment stands for this one's too."""
        on_gpu = device.type == "cuda"
        self._host = torch.zeros(*shape, dtype=dtype, pin_memory=on_gpu)
        self._numbers = self._host.numpy()
        self.through = through or (torch.cuda.Event() if on_gpu else None)

    def mark(self) -> None:
        """The host's memory is in use until what was launched so far is through."""
        if self.through is not None:
            self.through.record()

    def _settled(self) -> NDArray[Any]:
        """The host's memory, once it is no longer in use; at once if it never was."""
        if self.through is not None:
            self.through.synchronize()
        return self._numbers


class Upload(_Staging):
    """From the host: write into ``room()``, then ``send`` and ``mark``."""

    def room(self) -> NDArray[Any]:
        """Where to write what ``send`` will copy."""
        return self._settled()

    def send(self, target: Tensor) -> None:
        """Copy to the device after what it was asked before; the host does not wait."""
        target.copy_(self._host, non_blocking=True)


class Download(_Staging):
    """To the host: ``start`` after what computes the tensor and ``mark``; ``wait`` where its numbers are needed."""

    def start(self, source: Tensor) -> None:
        """Copy from the device after what it was asked before; what it is asked after ``mark`` delays no ``wait``."""
        self._host.copy_(source, non_blocking=True)

    def wait(self) -> NDArray[Any]:
        """The numbers of the last ``start``, an array of their own."""
        return self._settled().copy()
