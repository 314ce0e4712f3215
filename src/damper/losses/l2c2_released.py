"""L2C2 as in its released SAC code, for comparison: it compares policies at different actions."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from damper.interface import Batch, Loss, Noise, NoiseDraws, Policy, Setting
from damper.losses._maths import squashed_gaussian
from damper.losses.l2c2 import NOISE, check_bounds, l2c2_actor, l2c2_critic, neighbour

DRAWS = 4
LOG_RATIO = 10.0


def log_prob(distribution: tuple[Tensor, Tensor], epsilon: Tensor) -> Tensor:
    """``log π(tanh(m + σε))`` of the squashed Gaussian."""
    return squashed_gaussian(*distribution, epsilon)[1]


def _actor(
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    sigma: Setting = 1.0,
    lambda_low: Setting = 0.01,
    lambda_high: Setting = 1.0,
    released_d: bool = True,
) -> Tensor:
    r"""``mean(λ_π max(0, 1 − ¼ Σ_k exp(½ clip(log π(ã_k|s̃) − log π(a_k|s), ±10))))``.

    That is for SAC; for TD3 it is ``l2c2``.
    ``a_k ~ π(·|s)`` and ``ã_k ~ π(·|s̃)`` are separate draws, so the ratio does not compare
    densities at the same action and says almost nothing about the mean.
    """
    if not policy.stochastic:
        bounds = {"sigma": sigma, "lambda_low": lambda_low, "lambda_high": lambda_high}
        return l2c2_actor(policy, batch, noise, **bounds, released_d=released_d)
    near = neighbour(batch, noise["l2c2"], sigma, lambda_low, lambda_high, released_d)
    here, there = policy.distribution(batch.obs), policy.distribution(near.obs)
    ratios = [
        log_prob(there, noise[f"l2c2_there_{k}"]) - log_prob(here, noise[f"l2c2_here_{k}"])
        for k in range(DRAWS)
    ]
    overlap = (0.5 * torch.stack(ratios).clamp(-LOG_RATIO, LOG_RATIO)).exp().mean(0)
    return (near.weight * (1.0 - overlap).clamp(min=0.0)).mean(-1)


_purposes = [f"l2c2_{where}_{k}" for where in ("here", "there") for k in range(DRAWS)]
_noise = NOISE | dict.fromkeys(_purposes, Noise("normal", "action"))
l2c2_released_actor = Loss(_actor, noise=_noise, reads_outputs_only=True, relation=check_bounds)
l2c2_released_critic = Loss(
    functools.partial(l2c2_critic.function, released_d=True),
    noise=NOISE,
    reads_outputs_only=True,
    relation=check_bounds,
)
