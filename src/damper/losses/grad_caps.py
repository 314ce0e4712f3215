"""Grad-CAPS: penalise zigzag, the action's second difference, relative to how far it moves."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from damper.interface import Batch, Loss, NoiseDraws, Policy, Setting

SHIFT = 1e-4  # keeps the displacement away from zero


def zigzag(policy: Policy, batch: Batch, form: Literal["released", "paper"] = "released") -> Tensor:
    r"""``mean(½ (2μ(s) − μ(s') − μ(s⁻))² h)`` over batch and action dimensions, per agent.

    ``h`` is detached: ``tanh(1/δ²)`` with ``δ = μ(s') − μ(s⁻) + 1e-4`` in the released code,
    ``1 / (tanh|μ(s') − μ(s⁻)| + 1e-4)`` in the paper.
    """
    before, mu, after = policy(batch.previous_obs), policy(batch.obs), policy(batch.next_obs)
    displacement = (after - before).detach()
    if form == "released":
        h = torch.tanh((displacement + SHIFT).square().reciprocal())
    else:
        h = (torch.tanh(displacement.abs()) + SHIFT).reciprocal()
    return (0.5 * (2.0 * mu - after - before).square() * h).mean((-2, -1))


def _grad_caps(
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    lambda_T: Setting = 1.0,
    form: Literal["released", "paper"] = "released",
) -> Tensor:
    r"""``λ_T mean(½ (2μ(s) − μ(s') − μ(s⁻))² h)``; ``h`` normalises by the displacement.

    Lee, Cao, Dao, Chen and Wu 2024 (arXiv 2407.04315). At an episode's first step ``s⁻ = s``.

    Args:
        lambda_T: weight of the term.
        form: which ``h``: "released" for the released code's, "paper" for the paper's.
    """
    return lambda_T * zigzag(policy, batch, form)


grad_caps = Loss(_grad_caps, previous_obs=True, reads_outputs_only=True)
