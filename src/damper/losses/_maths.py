"""Maths shared by the losses: settings per agent, a norm smooth at zero, squashed Gaussians."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

from damper.interface import Setting

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)

S = TypeVar("S", Tensor, Setting)


def unsqueeze_like(setting: S, like: Tensor) -> S:
    """A setting ``[P]`` with axes that broadcast with ``like``, ``[P, ...]``; floats pass."""
    if not isinstance(setting, Tensor) or setting.ndim == 0:
        return setting
    return setting.reshape(setting.shape + (1,) * (like.ndim - setting.ndim))


def length(x: Tensor) -> Tensor:
    """``‖x‖₂`` over the last axis, with gradient 0 at 0, where that of a square root is NaN.

    Not ``vector_norm``: torch 2.11 differentiates it wrongly inside ``torch.compile`` when that
    axis has one entry.
    """
    squared = x.square().sum(-1)
    moved = squared > 0
    return torch.where(moved, torch.where(moved, squared, 1.0).sqrt(), 0.0)


def squashed_gaussian(mean: Tensor, log_std: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """``a = tanh(m + σ ε)``, ``[..., A]``, and ``log π(a)``, ``[...]``, with SB3's 1e-6 in it."""
    action = torch.tanh(mean + log_std.exp() * epsilon)
    gaussian = -0.5 * epsilon.square() - log_std - _HALF_LOG_2PI
    return action, (gaussian - (1.0 - action.square() + 1e-6).log()).sum(-1)


def mean_square(x: Tensor) -> Tensor:
    """Mean square over the batch and the action dimensions, one value per agent."""
    return x.square().mean((-2, -1))
