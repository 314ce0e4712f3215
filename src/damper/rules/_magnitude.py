"""The paper's magnitude control, shared by DAMPER and its two ablations."""

from __future__ import annotations

import torch
from torch import Tensor

from damper._checks import Setting
from damper.rules._settings import broadcastable
from damper.rules._two_vector import PairStats


def magnitude(stats: PairStats, eta: Setting) -> Tensor:
    """``s_η = n_R w`` with ``w = min(n_T/n_R, 1)^(1−η)``, from logarithms; 0 where a norm is 0.

    Interpolates between capping the auxiliary's norm at the primary's (η = 0) and setting it to the
    primary's (η = 1).
    """
    eta = broadcastable("eta", eta, stats.c, high=1.0)
    usable = (stats.n_R > 0) & (stats.n_T > 0)
    log_q = (
        torch.where(usable, stats.n_T, 1.0).log() - torch.where(usable, stats.n_R, 1.0).log()
    ).clamp(max=0.0)
    return torch.where(usable, stats.n_R * ((1.0 - eta) * log_q).exp(), 0.0)
