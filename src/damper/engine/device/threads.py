"""The number of CPU threads for matrix products.

Synchronising threads costs more than a small product takes, and many times more where other
programs share the cores: three small agents on two busy cores trained fourteen times slower with
two threads than with one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch

# Floating-point operations of the largest product; 0.3 ms on a core with 94 Gflop/s.
WORTH_SHARING = 3e7


def fitting_threads(rows: int, layers: Sequence[int]) -> int:
    """1 if even the largest product is too small to share, else torch's number of threads."""
    largest = max((a * b for a, b in pairwise(layers)), default=layers[0] if layers else 1)
    return 1 if 2.0 * rows * largest < WORTH_SHARING else torch.get_num_threads()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
