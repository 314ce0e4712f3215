"""Work beside other work on a GPU, on a CUDA stream of its own."""

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
        """What is launched in here waits for what was launched before, and holds up nothing."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """What is launched from here on waits for it."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
