"""Temporal consistency: the policy's actions at a state and at its successor should be alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from damper.errors import DamperError


def temporal_loss(policy: Callable[[Any], Tensor], obs: Any, next_obs: Any, mask: Tensor | None = None) -> Tensor:
    r"""``L_T = mean over the batch of ‖μ(s') − μ(s)‖²`` (sum over action dimensions), over the pairs kept.

    Args:
        policy: μ, a callable from observations to deterministic actions ``[..., B, A]``; its gradient flows through
            both states.
        obs: observations s, ``[B, ...]``, or ``[P, B, ...]`` for a population.
        next_obs: their successors s', the true ones: at an episode's end the final observation.
        mask: True for the pairs to keep, ``[..., B]`` or ``[..., B, 1]``; leave out terminations with
            ``mask=~done`` (the authors' code does). None keeps all.

    Returns:
        A scalar, or one value per agent ``[P]``; 0 where no pair is kept.
    """
    return masked_distance(policy(next_obs), policy(obs), mask)


def masked_distance(mu_next: Tensor, mu: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the kept pairs of ``‖μ(s') − μ(s)‖²``."""
    if mu.ndim < 2:
        raise DamperError(f"policy must return actions [..., batch, action], but returned shape {tuple(mu.shape)}.")
    squared = (mu_next - mu).square().sum(-1)
    if mask is None:
        return squared.mean(-1)
    keep = mask.squeeze(-1) if mask.shape == (*squared.shape, 1) else mask
    if keep.shape != squared.shape:
        raise DamperError(f"mask must have the batch's shape {tuple(squared.shape)}, but has {tuple(mask.shape)}.")
    keep = keep.to(squared.dtype)
    return (squared * keep).sum(-1) / keep.sum(-1).clamp(min=1.0)
