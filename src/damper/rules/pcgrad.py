"""PCGrad: on conflict, project each gradient onto the other's normal plane, then add."""

from __future__ import annotations

from torch import Tensor

from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule()
def pcgrad(stats: PairStats) -> tuple[Tensor, Tensor]:
    """``g = g_R + g_T``; on conflict ``g = (1 − b/n_R²) g_R + (1 − b/n_T²) g_T``, ``b = ⟨g_R, g_T⟩``.

    Yu et al., "Gradient Surgery for Multi-Task Learning", NeurIPS 2020, Algorithm 1. With two
    gradients the order of projections that the paper draws at random does not matter: each is
    projected onto the other's original.
    """
    opposed = stats.c.clamp(max=0.0)
    return -opposed * stats.n_T, stats.n_T - opposed * stats.n_R
