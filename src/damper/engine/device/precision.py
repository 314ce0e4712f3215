"""A run's device and TF32 setting, as a context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from damper.errors import DamperError


def check_tf32(device: str, tf32: bool) -> None:
    """Raise for TF32 on a CPU, which has none: records would name a format that was not used."""
    if tf32 and not device.startswith("cuda"):
        raise DamperError(
            "tf32 must be off on a CPU, which has no TF32, but True was given with "
            f"device={device!r}: leave tf32 out, or train on a GPU."
        )


@contextmanager
def device_context(device: str, tf32: bool) -> Iterator[None]:
    """Make a CUDA device the current one, and allow TF32 products or not; restores both."""
    matmul = torch.backends.cuda.matmul
    switch = _readable_switch()
    before = getattr(matmul, switch)
    matmul.allow_tf32 = tf32
    try:
        with torch.cuda.device(device) if device.startswith("cuda") else nullcontext():
            yield
    finally:
        setattr(matmul, switch, before)


def _readable_switch() -> str:
    """The TF32 switch that can be read: PyTorch's old one raises once the new one has been set."""
    try:
        _ = torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:
        return "fp32_precision"
    return "allow_tf32"
