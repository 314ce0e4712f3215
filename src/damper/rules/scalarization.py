"""Scalarization: the usual penalty with a fixed weight."""

from __future__ import annotations

from torch import Tensor

from damper._checks import Setting
from damper.rules._settings import broadcastable
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule()
def scalarization(stats: PairStats, weight: Setting = 1.0) -> tuple[float, Tensor]:
    """``g = g_R + λ g_T``, the gradient of ``L_R + λ L_T``.

    Settings:
        weight: λ ≥ 0, a float or a tensor that broadcasts over the leading axes.
    """
    return 0.0, broadcastable("weight", weight, stats.c) * stats.n_T
