"""PAVE: a regular and curved field of action gradients, which the actor gets from the critic."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from damper.interface import Batch, Critic, Loss, Noise, NoiseDraws, Policy, Setting
from damper.losses._maths import mean_square, unsqueeze_like


def action_gradient(critic: Critic, obs: Tensor, action: Tensor) -> Tensor:
    """``∇ₐQ_j(s, a)`` of each critic by its own copy of the action, ``[..., 2, B, A]``.

    Uses ``torch.func``, so that both autograd and ``torch.func`` can differentiate it again,
    compiled or not.
    """
    return torch.func.grad(lambda a: critic(obs, a).sum())(action)


def curvature(critic: Critic, obs: Tensor, action: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """``vᵀ∇²ₐₐQ_j v``, ``[..., 2, B]``, and the gradient ``∇ₐQ_j``, ``[..., 2, B, A]``."""

    def along(a: Tensor) -> tuple[Tensor, Tensor]:
        gradient = action_gradient(critic, obs, a)
        return (gradient * v).sum(), gradient

    Hv, gradient = torch.func.grad(along, has_aux=True)(action)
    return (Hv * v).sum(-1), gradient


def nested_action_gradients(
    critic: Critic, observations: Sequence[Tensor], action: Tensor, v: Tensor
) -> tuple[list[Tensor], Tensor]:
    """``∇ₐQ_j`` at each observation and ``vᵀ∇²ₐₐQ_j v`` at the first, by nested derivatives."""
    a, v = (x.unsqueeze(-3).expand(*x.shape[:-2], 2, -1, -1) for x in (action, v))
    first, *others = observations
    vHv, gradient = curvature(critic, first, a, v)
    rest = action_gradient(critic, torch.cat(others, -2), torch.cat([a] * len(others), -2))
    return [gradient, *rest.chunk(len(others), -2)], vHv


def _pave(
    critic: Critic,
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    lambda_1: Setting = 0.1,
    lambda_2: Setting = 0.1,
    lambda_3: Setting = 0.01,
    sigma: Setting = 0.01,
    delta: Setting = 1.0,
) -> Tensor:
    r"""``λ₁ MPR + λ₂ VFC + λ₃ Curv``, each summed over the two critics, at the replay action.

    Nothing is detached, ε ~ N(0, I), and v is ±1 per action dimension; both critics share them and
    need an activation with a second derivative. ``MPR = mse(∇ₐQ(s + σε, a), ∇ₐQ(s, a))``,
    ``VFC = mse(∇ₐQ(s', a), ∇ₐQ(s, a))`` and ``Curv = mean relu(vᵀ∇²ₐₐQ v + δ)``: Lee, Kwak, Kim and
    Hwang 2026 (arXiv 2601.22970).

    Args:
        lambda_1: weight of mixed-partial regularization.
        lambda_2: weight of vector-field consistency.
        lambda_3: weight of curvature preservation.
        sigma: σ of the noise, in raw observation units.
        delta: δ, the minimum concavity of Q.
    """
    noisy = batch.obs + unsqueeze_like(sigma, batch.obs) * noise["pave_state"]
    observations = (batch.obs, noisy, batch.next_obs)
    inputs = observations, batch.action, noise["pave_direction"]
    if hasattr(critic, "action_gradients"):  # torch.compile cannot trace isinstance of a protocol
        (gradient, *others), vHv = critic.action_gradients(*inputs)
    else:
        (gradient, *others), vHv = nested_action_gradients(critic, *inputs)
    MPR, VFC = (mean_square(other - gradient).sum(-1) for other in others)
    Curv = torch.relu(vHv + unsqueeze_like(delta, vHv)).mean(-1).sum(-1)
    return lambda_1 * MPR + lambda_2 * VFC + lambda_3 * Curv


pave = Loss(
    _pave,
    noise={"pave_state": Noise("normal", "obs"), "pave_direction": Noise("rademacher", "action")},
)
