"""Unconditional sum: DAMPER's magnitude control without its projection."""

from __future__ import annotations

from torch import Tensor

from damper._checks import Setting
from damper.rules._magnitude import magnitude
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule()
def unconditional_sum(stats: PairStats, eta: Setting = 1.0) -> tuple[float, Tensor]:
    """``g = g_R + (n_R/n_T) w g_T`` with ``w = q^(1−η)`` and ``q = min(n_T/n_R, 1)``.

    An ablation of the DAMPER paper: the part that opposes the primary stays, so ``⟨g, g_R⟩`` may
        fall to 0.

    Settings:
        eta: η in [0, 1], a float or a tensor that broadcasts over the leading axes.
    """
    return 0.0, magnitude(stats, eta)
