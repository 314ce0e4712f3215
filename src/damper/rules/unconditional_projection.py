"""Unconditional projection: DAMPER's magnitude control, with the projection at every update."""

from __future__ import annotations

from torch import Tensor

from damper._checks import Setting
from damper.rules._magnitude import magnitude
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule()
def unconditional_projection(stats: PairStats, eta: Setting = 1.0) -> tuple[Tensor, Tensor]:
    """``g = g_R + (n_R/n_T) w (g_T − ρ g_R)`` with ``ρ = ⟨g_R, g_T⟩/n_R²`` and ``w = q^(1−η)``.

    An ablation of the DAMPER paper: the part that agrees with the primary is removed too, so
    ``⟨g, g_R⟩ = n_R²``. As in DAMPER, ``n_T`` is the norm before the projection.

    Settings:
        eta: η in [0, 1], a float or a tensor that broadcasts over the leading axes.
    """
    s = magnitude(stats, eta)
    return -s * stats.c, s
