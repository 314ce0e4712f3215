"""The segment between the two gradients, over which MGDA and CAGrad minimise."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from damper.rules._two_vector import PairStats


class Segment(NamedTuple):
    """Points ``g_w = x g_R + x̄ g_T`` with ``x + x̄ = 1``, in units of the larger norm ``n``.

    Attributes:
        n: the larger of the two norms.
        a: ``n_R / n``.
        b: ``n_T / n``.
        d: ``‖g_R − g_T‖ / n``.
        p: position of ``g_T`` on the line through both, from the line's point nearest to the origin
            towards ``g_R``.
        q: position of ``g_R``, likewise.
    """

    n: Tensor
    a: Tensor
    b: Tensor
    d: Tensor
    p: Tensor
    q: Tensor

    def weights(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """``x`` and ``x̄`` at position ``y``, clamped to the segment; ½ each for equal gradients."""
        d = torch.where(self.d > 0, self.d, 1.0)
        x, rest = ((y - self.p) / d).clamp(0.0, 1.0), ((self.q - y) / d).clamp(0.0, 1.0)
        # The smaller weight may be sixty orders of magnitude below the other and still matter; they
        # must sum to one.
        x, rest = torch.where(x < rest, x, 1 - rest), torch.where(x < rest, 1 - x, rest)
        return torch.where(self.d > 0, x, 0.5), torch.where(self.d > 0, rest, 0.5)


def segment(stats: PairStats) -> Segment:
    """The segment of a pair, from differences, which stay accurate for nearly equal gradients."""
    n = torch.maximum(stats.n_R, stats.n_T)
    a, b = (length / torch.where(n > 0, n, 1.0) for length in (stats.n_R, stats.n_T))
    d = norm_of_sum(a, b, -stats.c)
    safe = torch.where(d > 0, d, 1.0)
    p = b * ((a - b) - a * (1 - stats.c)) / safe
    q = a * ((a - b) + b * (1 - stats.c)) / safe
    return Segment(n, a, b, d, p, q)


def norm_of_sum(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """``√(a² + b² + 2abc)`` for lengths a, b ≥ 0 at cosine c, without underflow or cancellation."""
    return torch.hypot(a - b, (2 * a * b * (1 + c)).sqrt())
