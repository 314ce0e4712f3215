"""ASAP: align the next action with a second head's prediction of it from the previous state."""

from __future__ import annotations

import torch
from torch import Tensor

from damper.interface import Batch, Loss, NoiseDraws, Policy, Setting
from damper.losses._maths import mean_square
from damper.losses.grad_caps import zigzag


def _asap(
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    lambda_S: Setting = 0.3,
    lambda_P: Setting = 2.0,
    lambda_T: Setting = 0.05,
    squash: bool = False,
) -> Tensor:
    r"""``λ_S ½ mse(μ(s'), P̄(s)) + λ_P ½ mse(P(s), stopgrad μ(s')) + λ_T L_T``.

    Kwak and Hwang 2026 (arXiv 2601.18479). ``L_T`` is Grad-CAPS's term, ``P`` a second head on the
    actor's last hidden layer, and ``P̄`` that head in a Polyak average of the whole actor. Neither
    ``P̄`` nor the target of ``P`` receives a gradient.

    Args:
        lambda_S: weight of the alignment.
        lambda_P: weight of the prediction.
        lambda_T: weight of Grad-CAPS's term.
        squash: apply tanh to a stochastic actor's second head too, as a deterministic one's has.
    """

    def head(raw: Tensor) -> Tensor:
        return torch.tanh(raw) if squash or not policy.stochastic else raw

    after = policy(batch.next_obs)
    alignment = 0.5 * mean_square(after - head(policy.averaged_prediction(batch.obs)).detach())
    prediction = 0.5 * mean_square(head(policy.prediction(batch.obs)) - after.detach())
    return lambda_S * alignment + lambda_P * prediction + lambda_T * zigzag(policy, batch)


asap = Loss(_asap, previous_obs=True, prediction=True, reads_outputs_only=True)
