"""PEGrad: always orthogonalise the auxiliary, then cap it at the primary's norm."""

from __future__ import annotations

import torch
from torch import Tensor

from damper._checks import check_choice
from damper.rules._two_vector import PairStats, two_vector_rule

PARALLEL = (
    1e-6  # where the sine is below it, the projection leaves only rounding error of float32 entries
)


@two_vector_rule()
def pegrad(stats: PairStats, cap: str = "projected") -> tuple[Tensor, Tensor]:
    """``g = g_R + min(1, n_R/‖g_T⊥‖) g_T⊥``, ``g_T⊥ = g_T − ρ g_R``, ``ρ = ⟨g_R, g_T⟩/n_R²``.

    Peri, Perincherry, Pandit and Lee, "Non-conflicting Energy Minimization in Reinforcement
    Learning based Robot Control", CoRL 2025. The paper can be read as capping either norm, so both
    are offered. Where the two gradients are parallel (sine below 1e-6) nothing is added.

    Settings:
        cap: "projected" caps by ``‖g_T⊥‖``, "original" by ``n_T``, which shortens a nearly parallel
            auxiliary twice.
    """
    check_choice("cap", cap, ("projected", "original"))
    n_R, n_T, c = stats
    if cap == "original":
        s = torch.minimum(n_R, n_T)
    else:
        sine = ((1 - c) * (1 + c)).sqrt()
        s = torch.where(sine > PARALLEL, torch.minimum(n_T, n_R / sine.clamp(min=PARALLEL)), 0.0)
    return -s * c, s
