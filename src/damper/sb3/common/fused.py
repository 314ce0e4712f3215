"""PyTorch's fused Adam on a CPU while our update runs: the same step, a third of the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.optim import Adam, AdamW, Optimizer


@contextmanager
def fused(optimizer: Optimizer) -> Iterator[None]:
    """Within the context, Adam's steps on a CPU are fused, unless the user chose an implementation.

    PyTorch's default there is a loop over parameters. The results differ by float32's rounding, so
    method "plain", which is SB3's bit for bit, keeps the loop.
    """
    groups = _undecided_groups(optimizer)
    for group in groups:
        group["fused"] = True
    try:
        yield
    finally:
        for group in groups:
            group["fused"] = None


def _undecided_groups(optimizer: Optimizer) -> list[dict[str, object]]:
    if type(optimizer) not in (Adam, AdamW):
        return []
    return [
        group
        for group in optimizer.param_groups
        if group["fused"] is None
        and group["foreach"] is None
        and not (group["capturable"] or group["differentiable"])
        and all(map(_is_usual, group["params"]))
    ]


def _is_usual(parameter: torch.Tensor) -> bool:
    return parameter.is_cpu and parameter.is_floating_point()
