"""TD3 (Fujimoto et al. 2018): losses, target and exploration.

All are pure functions of networks, batch and noise. Reductions and their order follow
Stable-Baselines3; a parity test checks this.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from damper.interface import Batch, Critic, Noise, NoiseDraws, Policy
from damper.losses._maths import unsqueeze_like

HEADS = ("mu",)
HAS_ACTOR_TARGET = True
UPDATE_NOISE = {"target": Noise("normal", "action")}
EXPLORATION_NOISE = {"exploration": Noise("normal", "action")}


def target(
    actor: Policy, critic: Critic, batch: Batch, noise: NoiseDraws, hparams: Mapping[str, Tensor]
) -> Tensor:
    """``y = r + γ (1 − d) min_j Q'_j(s', clip(μ'(s') + clip(σ ε, ±c), ±1))``, ``[..., B]``."""
    mu = actor(batch.next_obs)
    clip = unsqueeze_like(hparams["target_noise_clip"], mu)
    smoothing = noise["target"] * unsqueeze_like(hparams["target_policy_noise"], mu)
    action = (mu + smoothing.clamp(-clip, clip)).clamp(-1.0, 1.0)
    value = critic(batch.next_obs, action).amin(-2)
    return batch.reward + (1.0 - batch.terminated) * unsqueeze_like(hparams["gamma"], value) * value


def critic_loss(critic: Critic, batch: Batch, target: Tensor) -> Tensor:
    """``Σ_j mean (Q_j(s, a) − y)²``, one value per agent."""
    return (critic(batch.obs, batch.action) - target.unsqueeze(-2)).square().mean(-1).sum(-1)


def actor_loss(
    policy: Policy, critic: Critic, batch: Batch, noise: NoiseDraws, hparams: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """``L_R = −mean Q_1(s, μ(s))``, and no logs."""
    return -critic.first(batch.obs, policy(batch.obs)).mean(-1), {}


def explore(
    policy: Policy, obs: Tensor, noise: NoiseDraws, hparams: Mapping[str, Tensor]
) -> Tensor:
    """``clip(μ(s) + σ ε, ±1)``."""
    return perturb(policy(obs), noise, hparams)


def perturb(action: Tensor, noise: NoiseDraws, hparams: Mapping[str, Tensor]) -> Tensor:
    """Add exploration noise to an action; as in SB3, also to the random ones of the first steps."""
    sigma = unsqueeze_like(hparams["action_noise"], action)
    return torch.clamp(action + sigma * noise["exploration"], -1.0, 1.0)
