"""Run a function on fixed tensors as a CUDA graph: captured once, then replayed with one launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# Runs before the capture, to finish lazy initialisation and autotuning and to allocate workspaces.
CAPTURE_WARM_UP_RUNS = 3


class Graphed:
    """Run ``function`` (no arguments, in-place on captured tensors) as a CUDA graph.

    Warm-up and capture run the function, so the tensors that it changes (``state()``) are restored
    before the first real replay: a graphed run computes the same as an eager one.
    """

    def __init__(
        self, function: Callable[[], Any], state: Callable[[], Mapping[str, Tensor]]
    ) -> None:
        # Captured at the first call, when everything that the function reads exists.
        self.function, self.state = function, state
        self.graph: torch.cuda.CUDAGraph | None = None
        self.output: Any = None

    def __call__(self) -> Any:
        """Replay the graph; every call returns the same output tensors."""
        if self.graph is None:
            self.graph = self._capture()
        self.graph.replay()
        return self.output

    def _capture(self) -> torch.cuda.CUDAGraph:
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(CAPTURE_WARM_UP_RUNS):
                self.function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph):
            self.output = self.function()
        for name, tensor in self.state().items():
            tensor.copy_(before[name])
        return graph


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect garbage before a capture, not during it: freeing a graph then would break it."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
