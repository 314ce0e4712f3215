"""What several losses compute: settings per agent against a batch, lengths with a gradient at zero, mean squares."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor

from damper.interface import Setting


@overload
def unsqueeze_like(setting: Tensor, like: Tensor) -> Tensor: ...
@overload
def unsqueeze_like(setting: Setting, like: Tensor) -> Setting: ...
def unsqueeze_like(setting: Setting, like: Tensor) -> Setting:
    """A per-agent setting ``[P]`` shaped to meet ``[P, ...]``; floats pass."""
    if not isinstance(setting, Tensor) or setting.ndim == 0:
        return setting
    return setting.reshape(setting.shape + (1,) * (like.ndim - setting.ndim))


def length(x: Tensor) -> Tensor:
    """``‖x‖₂`` over the last axis with gradient 0 at 0, where a square root's is not a number.

    Not ``vector_norm``: torch 2.11 differentiates it wrongly inside ``torch.compile`` when that axis has one entry.
    """
    squared = x.square().sum(-1)
    moved = squared > 0
    return torch.where(moved, torch.where(moved, squared, 1.0).sqrt(), 0.0)


def mean_square(x: Tensor) -> Tensor:
    """Mean over the batch and the action dimensions, one value per agent."""
    return x.square().mean((-2, -1))
