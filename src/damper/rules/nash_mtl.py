"""Nash-MTL: the bargaining solution of the two losses."""

from __future__ import annotations

import torch
from torch import Tensor

from damper.rules._two_vector import PairStats, two_vector_rule

OPPOSITE = 1e-12  # of 1 + c: below it the unit vectors' sum is float32's rounding error


@two_vector_rule(keeps_primary=False)
def nash_mtl(stats: PairStats) -> tuple[Tensor, Tensor]:
    """``d = (û_R + û_T)/√(1 + c)``, which solves ``GᵀG α = 1/α`` with ``d = G α``; ``‖d‖ = √2``.

    Navon et al., "Multi-Task Learning as a Bargaining Game", ICML 2022, with α in closed form.
    Opposite gradients (1 + c below 1e-12) or a zero primary leave nothing to agree on: d is 0, the
    disagreement point.
    """
    agrees = (stats.n_R > 0) & (1 + stats.c > OPPOSITE)
    length = torch.where(agrees, torch.where(agrees, 1 + stats.c, 1.0).rsqrt(), 0.0)
    return length, length
