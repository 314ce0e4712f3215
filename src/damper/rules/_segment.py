"""The segment between the two gradients, on which MGDA and CAGrad look for their point."""

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
        p: where ``g_T`` sits on the line, counted from the line's point nearest to the origin towards ``g_R``.
        q: where ``g_R`` sits.
    """

    n: Tensor
    a: Tensor
    b: Tensor
    d: Tensor
    p: Tensor
    q: Tensor

    def weights(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """``x`` and ``x̄`` at position ``y``, or at the end nearest to it; ½ each where both gradients are the same."""
        d = torch.where(self.d > 0, self.d, 1.0)
        x, rest = ((y - self.p) / d).clamp(0.0, 1.0), ((self.q - y) / d).clamp(0.0, 1.0)
        # The smaller weight may be sixty orders below the other and still matter, and both must sum to one.
        x, rest = torch.where(x < rest, x, 1 - rest), torch.where(x < rest, 1 - x, rest)
        return torch.where(self.d > 0, x, 0.5), torch.where(self.d > 0, rest, 0.5)


def segment(stats: PairStats) -> Segment:
    """The pair's segment; positions from differences, which keep their digits for nearly equal gradients."""
    n = torch.maximum(stats.n_R, stats.n_T)
    a, b = (length / torch.where(n > 0, n, 1.0) for length in (stats.n_R, stats.n_T))
    d = norm_of_sum(a, b, -stats.c)
    safe = torch.where(d > 0, d, 1.0)
    p = b * ((a - b) - a * (1 - stats.c)) / safe
    q = a * ((a - b) + b * (1 - stats.c)) / safe
    return Segment(n, a, b, d, p, q)


def norm_of_sum(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """``√(a² + b² + 2abc)`` for lengths a, b ≥ 0 at cosine c, without squaring what may underflow or cancel."""
    return torch.hypot(a - b, (2 * a * b * (1 + c)).sqrt())
