"""A side CUDA stream for work that runs concurrently with the current stream's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """Run a block on a side CUDA stream, concurrently with later work on the current one.

    ``join`` makes the current stream wait for it. Can be captured in a CUDA graph. On a CPU everything stays in order.
    """

    def __init__(self, device: torch.device) -> None:
        """Of a CUDA device; any other has no streams."""
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Launch on the side stream: after earlier work of the current stream, beside its later work."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """Make the current stream wait for the side stream."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
