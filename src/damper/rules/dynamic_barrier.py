"""Dynamic Barrier: the auxiliary, plus as much of the primary as its descent needs."""

from __future__ import annotations

from torch import Tensor

from damper._checks import Setting
from damper.rules._settings import broadcastable
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule(keeps_primary=False)
def dynamic_barrier(
    stats: PairStats, weight: Setting = 1.0, beta: Setting = 1.0
) -> tuple[Tensor, Tensor]:
    """``d = w g_T + max(β − wρ, 0) g_R`` with ``ρ = ⟨g_R, g_T⟩/n_R²``.

    Gong, Liu and Liu, "Automatic and Harmless Regularization with Constrained and Lexicographic
    Optimization: A Dynamic Barrier Approach", NeurIPS 2021, with the barrier ``φ = β n_R²``: the
    shortest correction of ``w g_T`` that keeps ``⟨d, g_R⟩ ≥ β n_R²``. Where ``w g_T`` alone
    satisfies that, no primary is added.

    Settings:
        weight: w ≥ 0, a float or a tensor that broadcasts over the leading axes.
        beta: β ≥ 0, the share of its own descent that the primary keeps: ``⟨d, g_R⟩ ≥ β n_R²``.
    """
    n_R, n_T, c = stats
    s = broadcastable("weight", weight, c) * n_T
    return (broadcastable("beta", beta, c) * n_R - s * c).clamp(min=0.0), s
