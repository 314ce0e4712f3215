"""CAGrad: near the average gradient, the direction that is best for the worse-off loss."""

from __future__ import annotations

import torch
from torch import Tensor

from damper._checks import Setting
from damper.rules._segment import Segment, norm_of_sum, segment
from damper.rules._settings import broadcastable
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule(keeps_primary=False)
def cagrad(stats: PairStats, c: Setting = 0.5) -> tuple[Tensor, Tensor]:
    """``d = g_0 + c‖g_0‖ g_w/‖g_w‖`` with ``g_0 = (g_R + g_T)/2`` and ``g_w = x g_R + (1−x) g_T``.

    x in [0, 1] minimises ``⟨g_w, g_0⟩ + c‖g_0‖‖g_w‖``. Liu et al., "Conflict-Averse Gradient
    Descent for Multi-task Learning", NeurIPS 2021, Algorithm 1; for two gradients the minimiser has
    a closed form. ``d = g_0`` where ``g_w = 0``.

    Settings:
        c: radius of the search around the average, in [0, 1]; 0 is the average itself. A float, or
            a tensor that broadcasts over the leading axes.
    """
    s = segment(stats)
    radius = broadcastable("c", c, stats.c, high=1.0) * norm_of_sum(s.a, s.b, stats.c) / 2
    x, rest = s.weights(_position(s, radius, stats.c))
    length = norm_of_sum(x * s.a, rest * s.b, stats.c)
    pull = torch.where(length > 0, radius / torch.where(length > 0, length, 1.0), 0.0)
    return s.n * s.a * (0.5 + pull * x), s.n * s.b * (0.5 + pull * rest)


def _position(s: Segment, radius: Tensor, cosine: Tensor) -> Tensor:
    """Position y of the minimum: ``(a² − b²)/(2d) + radius · y/√(y² + h²) = 0``.

    ``h`` is the line's distance from the origin. Where the slope never vanishes the position is
    infinite, and ``Segment.weights`` takes the segment's end.
    """
    scale = radius * s.d
    t = torch.where(
        scale > 0, (s.b - s.a) * (s.a + s.b) / 2 / torch.where(scale > 0, scale, 1.0), 0.0
    )
    h = s.a * s.b * ((1 - cosine) * (1 + cosine)).sqrt() / torch.where(s.d > 0, s.d, 1.0)
    inside = (1 - t) * (1 + t)
    return t * torch.where(inside > 0, h / torch.where(inside > 0, inside, 1.0).sqrt(), torch.inf)
