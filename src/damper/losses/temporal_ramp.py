"""Penalty on the temporal loss whose weight grows with training: return first, smoothness later."""

from __future__ import annotations

from torch import Tensor

from damper.interface import Batch, Loss, NoiseDraws, Policy, Setting
from damper.losses.temporal import Units, temporal


def _temporal_ramp(
    policy: Policy,
    batch: Batch,
    noise: NoiseDraws,
    *,
    weight: Setting = 1.0,
    mask_terminal: bool = True,
    units: Units = "policy",
) -> Tensor:
    r"""``λ (k/K) L_T``, where k of K steps are done.

    Args:
        weight: λ, reached at the end of training.
        mask_terminal: leave out pairs that end in a termination.
        units: units of the actions: "policy", scaled to [-1, 1], or "environment".
    """
    L_T = temporal(policy, batch, noise, mask_terminal=mask_terminal, units=units)
    return weight * batch.progress * L_T


temporal_ramp = Loss(_temporal_ramp, reads_outputs_only=True)
