"""Small arrays between host and device at every step, by asynchronous copies through pinned memory.

A plain copy waits until the device has done everything before it. These are stream-ordered: they run after what the
current stream was given before, and the host waits only where it needs the numbers. The copies themselves can be
captured in a CUDA graph; ``record_event`` is called after that was launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_sleeps = False


def sleep_while_waiting() -> None:
    """From now on in this process, a host that waits for one of these copies sleeps instead of spinning.

    For processes that share the cores: one that spins keeps a core from the others' environments. Alone, spinning
    notices the end of a copy a little sooner.
    """
    global _sleeps
    _sleeps = True


class _PinnedBuffer:
    """Host memory of a fixed shape, pinned for a GPU, and the event after which the last copy from or to it is done."""

    def __init__(
        self,
        shape: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        done_event: torch.cuda.Event | None = None,
    ) -> None:
        """Pass ``done_event`` to share another buffer's event, where both copies end together."""
        on_gpu = device.type == "cuda"
        self._host = torch.zeros(*shape, dtype=dtype, pin_memory=on_gpu)
        self._array = self._host.numpy()
        self.done_event = done_event or (torch.cuda.Event(blocking=_sleeps) if on_gpu else None)

    def record_event(self) -> None:
        """Mark this point of the stream: the host's memory is in use until it is reached."""
        if self.done_event is not None:
            self.done_event.record()

    def _synchronize(self) -> NDArray[Any]:
        """The host's memory, once it is no longer in use; at once if it never was."""
        if self.done_event is not None:
            self.done_event.synchronize()
        return self._array


class Upload(_PinnedBuffer):
    """Host to device: write into ``host_buffer()``, then ``send`` and ``record_event``."""

    def host_buffer(self) -> NDArray[Any]:
        """Where to write what ``send`` will copy; waits for the copy before."""
        return self._synchronize()

    def send(self, target: Tensor) -> None:
        """Copy to the device in stream order; the host does not wait."""
        target.copy_(self._host, non_blocking=True)


class Download(_PinnedBuffer):
    """Device to host: ``start`` after what computes the tensor, ``record_event``; ``wait`` where numbers are needed."""

    def start(self, source: Tensor) -> None:
        """Copy from the device in stream order; what is launched after ``record_event`` delays no ``wait``."""
        self._host.copy_(source, non_blocking=True)

    def wait(self) -> NDArray[Any]:
        """The numbers of the last ``start``, an array of their own."""
        return self._synchronize().copy()
