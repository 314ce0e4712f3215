"""L2C2: local Lipschitz continuity of policy and value around a state, at the scale of one step."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from damper.errors import DamperError
from damper.interface import Batch, Critic, Loss, Noise, NoiseDraws, Policy, Setting
from damper.losses._maths import length, unsqueeze_like

NOISE = {"l2c2": Noise("uniform", "obs")}


class Neighbour(NamedTuple):
    """A state near s, its distance d and the policy's weight there, λ_π (``[..., B]``)."""

    obs: Tensor
    d: Tensor
    weight: Tensor


def neighbour(
    batch: Batch,
    uniform: Tensor,
    sigma: Setting,
    lambda_low: Setting,
    lambda_high: Setting,
    released_d: bool,
) -> Neighbour:
    r"""``s̃ = s + u (s' − s)``, ``d = ‖u‖_∞ + ε`` and ``λ_π = ε λ̄ / d``.

    ``ε = σλ_/(λ̄ − σλ_)`` and ``u ~ U(−w, w)`` with ``w = σ + (σ−1) ε`` make λ_π run from λ̄ at
    ``u = 0`` to λ_ at ``‖u‖_∞ = w``. The released d is ``max |(s̃ − s)/(s' − s + 1e-8)| + ε``,
    which ignores dimensions that did not move.
    """
    low = sigma * lambda_low
    epsilon = low / (lambda_high - low)
    width = sigma + (sigma - 1.0) * epsilon
    u = unsqueeze_like(width, uniform) * uniform
    step = batch.next_obs - batch.obs
    near = batch.obs + u * step
    stretch = (near - batch.obs) / (step + 1e-8) if released_d else u
    reach = stretch.abs().amax(-1)
    # With λ_ = 0 the weight ε λ̄/d must be 0, also where u is 0.
    d = (reach + unsqueeze_like(epsilon, reach)).clamp(min=torch.finfo(reach.dtype).tiny)
    return Neighbour(near, d, unsqueeze_like(epsilon * lambda_high, d) / d)


def hellinger(p: tuple[Tensor, Tensor], q: tuple[Tensor, Tensor]) -> Tensor:
    r"""Squared Hellinger distance of diagonal Gaussians, (mean, log standard deviation), ``[...]``.

    ``H² = 1 − Π_i cosh(Δℓ_i)^{-1/2} exp(−Δm_i² / (8 σ_i σ̃_i cosh Δℓ_i))``, since ``σ² + σ̃² = 2 σ
    σ̃ cosh Δℓ``. Bijections such as tanh do not change it.
    """
    (m, log_std), (m_q, log_std_q) = p, q
    spreading = torch.cosh(log_std - log_std_q)
    shift = (m - m_q).square() / (8.0 * (log_std + log_std_q).exp() * spreading)
    return -torch.expm1(-(0.5 * spreading.log() + shift).sum(-1))


def _actor(
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    sigma: Setting = 1.0,
    lambda_low: Setting = 0.01,
    lambda_high: Setting = 1.0,
    released_d: bool = False,
) -> Tensor:
    r"""``mean(λ_π ½ ‖μ(s) − μ(s̃)‖₂)`` for TD3, ``mean(λ_π H²(π(·|s), π(·|s̃)))`` for SAC.

    Kobayashi 2022 (arXiv 2202.07152).

    Args:
        sigma: σ, size of the neighbourhood of s, in steps.
        lambda_low: λ_, the weight at the edge of the neighbourhood.
        lambda_high: λ̄, the weight at s itself; must exceed σλ_.
        released_d: compute d as in the released code.
    """
    near = neighbour(batch, noise["l2c2"], sigma, lambda_low, lambda_high, released_d)
    if policy.stochastic:
        distance = hellinger(policy.distribution(batch.obs), policy.distribution(near.obs))
    else:
        distance = 0.5 * length(policy(batch.obs) - policy(near.obs))
    return (near.weight * distance).mean(-1)


def _critic(
    critic: Critic,
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    sigma: Setting = 1.0,
    lambda_low: Setting = 0.01,
    lambda_high: Setting = 1.0,
    beta: Setting = 0.1,
    released_d: bool = False,
) -> Tensor:
    r"""``mean(λ_V ½ |min_j Q_j(s, a) − min_j Q_j(s̃, a)|)`` with ``λ_V = β λ_π / d``.

    Settings as the actor's, and:
        beta: β, the weight of the critic's term.
    """
    near = neighbour(batch, noise["l2c2"], sigma, lambda_low, lambda_high, released_d)
    value, value_near = (critic(obs, batch.action).amin(-2) for obs in (batch.obs, near.obs))
    weight = unsqueeze_like(beta, value) * near.weight / near.d
    return (weight * 0.5 * (value - value_near).abs()).mean(-1)


def check_bounds(sigma: Setting, lambda_low: Setting, lambda_high: Setting, **others: Any) -> None:
    """Raise unless ``lambda_high > sigma * lambda_low``."""
    if not bool(torch.as_tensor(lambda_high > sigma * lambda_low).all()):
        raise DamperError(
            f"lambda_high must be greater than sigma * lambda_low, but {lambda_high} was given, "
            f"with sigma={sigma} and lambda_low={lambda_low}: raise lambda_high or lower "
            "lambda_low."
        )


l2c2_actor = Loss(_actor, noise=NOISE, reads_outputs_only=True, relation=check_bounds)
l2c2_critic = Loss(_critic, noise=NOISE, reads_outputs_only=True, relation=check_bounds)
