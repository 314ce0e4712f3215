"""A run's device and TF32 setting, as a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def device_context(device: str, tf32: bool) -> Iterator[None]:
    """Make a CUDA device the current one and allow TF32 products or not; both are restored in the end."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        with torch.cuda.device(device) if device.startswith("cuda") else nullcontext():
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
