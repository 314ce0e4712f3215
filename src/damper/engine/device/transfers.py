"""Copy small arrays between host and device at every step, asynchronously through pinned memory.

A plain copy waits until the device has finished all earlier work. These copies are stream-ordered:
they run after the work already queued on the current stream, and the host waits only where it needs
the numbers. The copies can be captured in a CUDA graph; call ``record_event`` after launching the
graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_blocking_events = False


def sleep_while_waiting() -> None:
    """Make the host sleep instead of spin while it waits for copies of later buffers.

    Use it in processes that share cores, where spinning keeps a core from other processes'
    environments. In a process alone, spinning notices the end of a copy slightly sooner.
    """
    global _blocking_events
    _blocking_events = True


class _PinnedBuffer:
    """Host memory, pinned for a GPU, with an event that marks the end of its last copy."""

    def __init__(
        self,
        shape: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        done_event: torch.cuda.Event | None = None,
    ) -> None:
        """Pass ``done_event`` to share another buffer's event if both copies end together."""
        on_gpu = device.type == "cuda"
        self._host = torch.zeros(*shape, dtype=dtype, pin_memory=on_gpu)
        self._array = self._host.numpy()
        self.done_event = done_event or (
            torch.cuda.Event(blocking=_blocking_events) if on_gpu else None
        )

    def record_event(self) -> None:
        """Mark this point of the stream: the host memory is in use until the stream reaches it."""
        if self.done_event is not None:
            self.done_event.record()

    def _synchronize(self) -> NDArray[Any]:
        """Wait until the host memory is no longer in use, and return it."""
        if self.done_event is not None:
            self.done_event.synchronize()
        return self._array


class Upload(_PinnedBuffer):
    """Host to device: write into ``host_buffer()``, then ``send`` and ``record_event``."""

    def host_buffer(self) -> NDArray[Any]:
        """The array that ``send`` will copy, to be written to; waits for the previous copy."""
        return self._synchronize()

    def send(self, target: Tensor) -> None:
        """Copy to the device in stream order; the host does not wait."""
        target.copy_(self._host, non_blocking=True)


class Download(_PinnedBuffer):
    """Device to host: ``start`` and ``record_event``, then ``wait`` where numbers are needed."""

    def start(self, source: Tensor) -> None:
        """Copy from the device in stream order; later work does not delay ``wait``."""
        self._host.copy_(source, non_blocking=True)

    def wait(self) -> NDArray[Any]:
        """The numbers of the last ``start``, as a new array."""
        return self._synchronize().copy()
