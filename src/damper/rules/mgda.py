"""MGDA: the shortest convex combination of the two gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from damper.rules._segment import segment
from damper.rules._span import Gram, span_rule


@span_rule(keeps_primary=False)
def mgda(gram: Gram, normalize: bool = False) -> tuple[Tensor, Tensor]:
    """``d = α g_R + (1−α) g_T`` with ``α = clip(⟨g_T − g_R, g_T⟩/‖g_R − g_T‖², 0, 1)``.

    Désidéri, "Multiple-gradient descent algorithm (MGDA) for multiobjective optimization", Comptes Rendus Mathématique
    350, 2012; for two gradients in closed form.

    Settings:
        normalize: take both gradients over their norms first; the answer is then ``(û_R + û_T)/2``, of length below 1.
    """
    if normalize:
        gram = Gram((gram.n_R > 0).to(gram.c.dtype), (gram.n_T > 0).to(gram.c.dtype), gram.c)
    x, rest = segment(gram).weights(torch.zeros_like(gram.c))
    return x * gram.n_R, rest * gram.n_T
