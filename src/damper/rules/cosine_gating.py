"""Cosine gating: add the auxiliary to the extent that it agrees with the primary."""

from __future__ import annotations

from torch import Tensor

from damper._checks import check_flag
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule()
def cosine_gating(stats: PairStats, weighted: bool = True) -> tuple[float, Tensor]:
    """``g = g_R + max(0, c) g_T``, or ``g = g_R + 1[c ≥ 0] g_T`` unweighted, with c the cosine.

    Du et al., "Adapting Auxiliary Losses Using Gradient Similarity", 2018, the weighted and the
    unweighted version.

    Settings:
        weighted: whether the cosine weights the auxiliary or only switches it on and off.
    """
    check_flag("weighted", weighted)
    _, n_T, c = stats
    return 0.0, n_T * (c.clamp(min=0.0) if weighted else (c >= 0).to(c.dtype))
