"""Temporal consistency: the policy's actions at a state and at its successor should be similar."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from damper.errors import DamperError
from damper.interface import Batch, Loss, NoiseDraws, Policy
from damper.losses._maths import length

Units = Literal["policy", "environment"]


def temporal_loss(
    policy: Callable[[Any], Tensor], obs: Any, next_obs: Any, mask: Tensor | None = None
) -> Tensor:
    r"""``L_T = mean ‖μ(s') − μ(s)‖²`` over the pairs kept (sum over action dimensions).

    Args:
        policy: μ, a callable from observations to deterministic actions ``[..., B, A]``, in
            whichever units they are to be compared; its gradient flows through both states.
        obs: observations s, ``[B, ...]``, or ``[P, B, ...]`` for a population.
        next_obs: their successors s', the true ones: at an episode's end the final observation.
        mask: True (or 1.0) for the pairs to keep, ``[..., B]`` or ``[..., B, 1]``; leave out
            terminations with ``mask=~done`` (the authors' code does), or ``done == 0`` where done
            is not boolean. None keeps all. Masks that keep nothing, call after call, are worth one
            warning.

    Returns:
        A scalar, or one value per agent ``[P]``; 0 where no pair is kept.
    """
    if not callable(policy):
        raise DamperError(
            "policy must be a function from observations to actions, but a "
            f"{type(policy).__name__} was given: pass the actor itself, not its actions."
        )
    mu_next, mu = policy(next_obs), policy(obs)
    if not isinstance(mu, Tensor):
        raise DamperError(
            f"policy must return the actions as one tensor, but returned a {type(mu).__name__}: "
            "wrap it, as in lambda obs: actor(obs)[0].tanh()."
        )
    loss = masked_distance(mu_next, mu, mask)
    if mask is not None:
        _empty_masks.look(mask)
    return loss


class _EmptyMasks:
    """Warns once of masks that keep nothing, such as ``done`` for ``~done``: the loss is 0.

    One mask in ``INTERVAL`` is read, and so a device waited for as rarely.
    """

    INTERVAL = 101  # odd, so that two losses called in turn are both read
    LOOKS = 3  # so many in a row must be empty

    def __init__(self) -> None:
        self.calls = self.empty = 0

    def look(self, mask: Tensor) -> None:
        # A graph cannot count calls, nor wait for the device.
        if torch.compiler.is_compiling():
            return
        self.calls += 1
        if self.calls % self.INTERVAL or self.empty == self.LOOKS or not _is_readable(mask):
            return
        self.empty = 0 if bool(mask.any()) else self.empty + 1
        if self.empty == self.LOOKS:
            warnings.warn(
                f"mask must be True for the pairs to keep, but the last {self.LOOKS} of those "
                "looked at keep none, so that the temporal loss is 0: is it inverted? Pass ~done.",
                stacklevel=3,
            )


def _is_readable(mask: Tensor) -> bool:
    """Whether a value may be read: not in a ``torch.func`` transform or a CUDA graph's capture."""
    if torch._C._functorch.is_functorch_wrapped_tensor(mask):
        return False
    return not (mask.is_cuda and torch.cuda.is_current_stream_capturing())


_empty_masks = _EmptyMasks()


def masked_distance(mu_next: Tensor, mu: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the kept pairs of ``‖μ(s') − μ(s)‖²``."""
    if mu.ndim < 2 or mu.shape != mu_next.shape:
        raise DamperError(
            "policy must return actions [..., batch, action] of one shape for both states, but "
            f"returned {tuple(mu.shape)} for obs and {tuple(mu_next.shape)} for next_obs: give "
            "both the same batch."
        )
    if not mu.is_floating_point():
        raise DamperError(
            f"policy must return actions of a floating-point dtype, but returned {mu.dtype}: the "
            "temporal loss is for continuous actions only."
        )
    difference = mu_next - mu
    if difference.dtype in (torch.float16, torch.bfloat16):
        # Sums over a batch exceed float16's range, and the loss would be 0.
        difference = difference.float()
    return masked_mean(difference.square().sum(-1), mask)


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the batch of the values that the mask keeps; 0 where it keeps none."""
    if mask is None:
        return values.mean(-1)
    if not isinstance(mask, Tensor):
        raise DamperError(
            f"mask must be a tensor, but a {type(mask).__name__} was given: wrap it in "
            "torch.as_tensor."
        )
    if mask.dtype is not torch.bool and not mask.is_floating_point():
        # ~ of an integer 0 or 1 is -1 or -2 (255 or 254), which keeps all pairs or flips the sign.
        raise DamperError(
            f"mask must be boolean or floating-point, but is {mask.dtype}, for which ~ is not a "
            "logical not: pass done == 0."
        )
    keep = mask.squeeze(-1) if mask.shape == (*values.shape, 1) else mask
    if keep.shape != values.shape:
        raise DamperError(
            f"mask must have the batch's shape {tuple(values.shape)}, but has {tuple(mask.shape)}: "
            "give one value per pair."
        )
    keep = keep.to(values.dtype)
    return (values * keep).sum(-1) / keep.sum(-1).clamp(min=1.0)


def _temporal(
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    mask_terminal: bool = True,
    squared: bool = True,
    units: Units = "policy",
) -> Tensor:
    r"""``L_T`` on a batch.

    Args:
        mask_terminal: leave out pairs that end in a termination.
        squared: penalise ``‖μ(s') − μ(s)‖²``; otherwise the norm itself, as earlier public code
            did.
        units: units of the actions: "policy", scaled to [-1, 1], or "environment",
            ``(high − low)/2`` times as large.
    """
    mask = 1.0 - batch.terminated if mask_terminal else None
    mu_next, mu = policy(batch.next_obs), policy(batch.obs)
    if units == "environment":
        mu_next, mu = batch.action_scale * mu_next, batch.action_scale * mu
    if squared:
        return masked_distance(mu_next, mu, mask)
    return masked_mean(length(mu_next - mu), mask)


temporal = Loss(_temporal, reads_outputs_only=True)
