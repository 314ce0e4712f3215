"""Fading DAMPER: DAMPER's direction, with a length that fades as the actions become smooth."""

from __future__ import annotations

import torch
from torch import Tensor

from damper._checks import Setting, check_is_number
from damper.rules._settings import broadcastable, fitted
from damper.rules._two_vector import PairStats, two_vector_rule

SMALLEST = 1e-6  # of δ: below it the push would have its full length for nearly every policy


@two_vector_rule()
def damper_fading(
    stats: PairStats, *, auxiliary_loss: Setting, full_change: Setting = 0.3
) -> tuple[Tensor, Tensor]:
    r"""``g = g_R + (n_R/n_T) w g̃_T`` with ``w = min(√L_T/δ, 1)`` and ``g̃_T`` as in DAMPER.

    DAMPER's weight ``q^(1−η)`` compares two gradients: at η = 1 it stays 1 however smooth the
    policy has become, which can drive it to one constant action; at η = 0 it depends on the
    reward's scale. This weight reads the value of the temporal loss instead. Its root is the root
    mean square change of the action between two steps, so the push fades with what is left to
    smooth, and a multiple of the reward changes nothing. As ``0 ≤ w ≤ 1``, both of DAMPER's
    guarantees hold: ``⟨g, g_R⟩ ≥ n_R²`` and ``‖g − g_R‖ ≤ n_R``.

    Settings:
        auxiliary_loss: ``L_T``, the value of the loss whose gradient is ``g_T``, one per agent;
            ``damper.backward`` and the training classes pass it. A loss of zero or less has nothing
            left to smooth (w = 0); one that is not finite leaves ``g_R`` too.
        full_change: δ ≥ 1e-6: the root mean square change of the action at and above which the push
            has the length of ``g_R``, in units of half the action range. A float, or a tensor that
            broadcasts over the leading axes.
    """
    n_R, _, c = stats
    check_is_number("auxiliary_loss", auxiliary_loss)
    loss = torch.zeros_like(c) + fitted("auxiliary_loss", auxiliary_loss, c)
    change = loss.clamp(min=0.0).sqrt()
    w = (change / broadcastable("full_change", full_change, c, low=SMALLEST)).clamp(max=1.0)
    s = torch.where(loss.isfinite(), n_R * w, 0.0)
    return -s * c.clamp(max=0.0), s
