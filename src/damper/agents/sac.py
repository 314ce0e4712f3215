"""SAC (Haarnoja et al. 2018) with a fixed or automatic temperature.

The functions of ``td3``, and those of the temperature. Reductions and their order follow
Stable-Baselines3; a parity test checks this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from damper.interface import Batch, Critic, Noise, NoiseDraws, Policy
from damper.losses._maths import squashed_gaussian, unsqueeze_like

HEADS = ("mu", "log_std")
HAS_ACTOR_TARGET = False
UPDATE_NOISE = {"target": Noise("normal", "action"), "policy": Noise("normal", "action")}
EXPLORATION_NOISE = {"exploration": Noise("normal", "action")}


def sample(policy: Policy, obs: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """``a = tanh(m + σ ε)`` and ``log π(a|s)``, as SB3 computes it."""
    mean, log_std = policy.distribution(obs)
    return squashed_gaussian(mean, log_std, epsilon)


Sampler = Callable[[Any, Any, Tensor], tuple[Tensor, Tensor]]


def target(
    actor: Policy,
    critic: Critic,
    batch: Batch,
    noise: NoiseDraws,
    hparams: Mapping[str, Tensor],
    sampler: Sampler = sample,
) -> Tensor:
    """``y = r + γ (1 − d) (min_j Q'_j(s', a') − α log π(a'|s'))``, ``a'`` from the actor.

    ``sampler`` draws ``a'`` and its log-probability; pass one for an actor with another
    distribution.
    """
    action, log_prob = sampler(actor, batch.next_obs, noise["target"])
    value = critic(batch.next_obs, action).amin(-2)
    value = value - unsqueeze_like(hparams["ent_coef"], value) * log_prob
    return batch.reward + (1.0 - batch.terminated) * unsqueeze_like(hparams["gamma"], value) * value


def critic_loss(critic: Critic, batch: Batch, target: Tensor) -> Tensor:
    """``½ Σ_j mean (Q_j(s, a) − y)²``, one value per agent."""
    return 0.5 * (critic(batch.obs, batch.action) - target.unsqueeze(-2)).square().mean(-1).sum(-1)


def actor_loss(
    policy: Policy,
    critic: Critic,
    batch: Batch,
    noise: NoiseDraws,
    hparams: Mapping[str, Tensor],
    sampler: Sampler = sample,
) -> tuple[Tensor, dict[str, Tensor]]:
    """``L_R = mean(α log π(a|s) − min_j Q_j(s, a))``; logs ``log π(a|s)`` for the temperature."""
    action, log_prob = sampler(policy, batch.obs, noise["policy"])
    # amin would split the gradient between equal values; SB3 gives it to one of them.
    value = critic(batch.obs, action).min(-2).values
    loss = (unsqueeze_like(hparams["ent_coef"], value) * log_prob - value).mean(-1)
    return loss, {"log_prob": log_prob.detach()}


def temperature_gradient(log_prob: Tensor, target_entropy: float) -> Tensor:
    """Gradient of ``J(log α) = −log α · mean(log π + H̄)``, per agent."""
    return -(log_prob.mean(-1) + target_entropy)


def explore(
    policy: Policy, obs: Tensor, noise: NoiseDraws, hparams: Mapping[str, Tensor]
) -> Tensor:
    """Sample an action from the policy."""
    return sample(policy, obs, noise["exploration"])[0]


def perturb(action: Tensor, noise: NoiseDraws, hparams: Mapping[str, Tensor]) -> Tensor:
    """Return the random actions of the first steps unchanged."""
    return action
