"""GCR-PPO: conditional projection, with the auxiliary's own magnitude."""

from __future__ import annotations

from torch import Tensor

from damper._checks import Setting
from damper.rules._settings import broadcastable
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule()
def gcr_ppo(stats: PairStats, weight: Setting = 1.0) -> tuple[Tensor, Tensor]:
    """``g = g_R + w (g_T − min(ρ, 0) g_R)`` with ``ρ = ⟨g_R, g_T⟩/n_R²`` and ``w = 1``.

    Munn et al., "Scalable Multi-Objective Robot Reinforcement Learning through Gradient Conflict
    Resolution", 2025: on conflict the lower-priority gradient gives way. This is only the rule, for
    one auxiliary, without the paper's multi-head critic.

    Settings:
        weight: w ≥ 0, a float or a tensor that broadcasts over the leading axes.
    """
    s = broadcastable("weight", weight, stats.c) * stats.n_T
    return -s * stats.c.clamp(max=0.0), s
