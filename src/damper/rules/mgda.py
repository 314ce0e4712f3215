"""MGDA: the shortest convex combination of the two gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from damper._checks import check_flag
from damper.rules._segment import segment
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule(keeps_primary=False)
def mgda(stats: PairStats, normalize: bool = False) -> tuple[Tensor, Tensor]:
    """``d = α g_R + (1−α) g_T`` with ``α = clip(⟨g_T − g_R, g_T⟩/‖g_R − g_T‖², 0, 1)``.

    Désidéri, "Multiple-gradient descent algorithm (MGDA) for multiobjective optimization", Comptes
    Rendus Mathématique 350, 2012; for two gradients in closed form.

    Settings:
        normalize: divide both gradients by their norms first; the result is then ``(û_R + û_T)/2``,
            of norm at most 1.
    """
    check_flag("normalize", normalize)
    if normalize:
        stats = PairStats(
            (stats.n_R > 0).to(stats.c.dtype), (stats.n_T > 0).to(stats.c.dtype), stats.c
        )
    x, rest = segment(stats).weights(torch.zeros_like(stats.c))
    return x * stats.n_R, rest * stats.n_T
