"""GradNorm: both gradients scaled to the same norm, an adaptation."""

from __future__ import annotations

import torch
from torch import Tensor

from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule(keeps_primary=False)
def gradnorm(stats: PairStats) -> tuple[Tensor, Tensor]:
    """``d = w_R g_R + w_T g_T`` with ``w_R n_R = w_T n_T`` and ``w_R + w_T = 2``.

    So both enter with the harmonic mean of the norms, ``2 n_R n_T/(n_R + n_T)``. Chen et al.,
    "GradNorm: Gradient Normalization for Adaptive Loss Balancing in Deep Multitask Networks", ICML
    2018. An adaptation: the paper's asymmetry is 0 (an actor loss has no training rate to compare),
    and the weights, which the paper learns by gradient descent, are set to that descent's fixed
    point.
    """
    low, high = torch.minimum(stats.n_R, stats.n_T), torch.maximum(stats.n_R, stats.n_T)
    length = 2 * low / (1 + low / torch.where(high > 0, high, 1.0))
    return length, length
