"""One agent's gradients on a CPU, parameter by parameter: a span rule's result with few passes over memory.

Large temporaries are given back to the system after every call and fetched again page by page, which takes longer than
computing with them. So nothing is flattened, and sums go through float64 in pieces. That is for ``backward``, which
has one agent; the rules themselves treat a batch and its members alike, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.rules._report import GradientReport, report
from damper.rules._settings import Setting, is_readable
from damper.rules._span import Gram, Lengths, Rule

PIECE = 32768  # entries, whose copies in float64 stay in a processor's cache
ORDINARY = 1e15  # norms between its inverse and this need no care with float32's range


def apply_single(
    rule: Rule, primary: Sequence[Tensor], auxiliary: Sequence[Tensor], **settings: Any
) -> tuple[list[Tensor], GradientReport] | None:
    """``[g_R] + r û_R + s û_T`` of float32 gradients with ordinary norms on a CPU, and what happened; None for others.

    Args:
        rule: one that ``span_rule`` made; None is the answer to others.
        primary: ``g_R``, a tensor per parameter.
        auxiliary: ``g_T``, likewise.
        **settings: the rule's own.
    """
    lengths: Lengths | None = getattr(rule, "lengths", None)
    if lengths is None or not all(map(_is_simple, (*primary, *auxiliary))):
        return None
    gram = _measure(primary, auxiliary)
    if gram is None:
        return None
    r, s = lengths(gram, **settings)
    kept = 1.0 if getattr(rule, "keeps_primary", True) else 0.0
    scale, f_T = kept + _factor(r, gram.n_R), _factor(s, gram.n_T)
    scaled = primary if scale == 1.0 else [g_R * scale for g_R in primary]
    combined = [torch.add(g, g_T, alpha=f_T) for g, g_T in zip(scaled, auxiliary, strict=True)]
    return combined, report(gram, torch.zeros_like(gram.n_R) + s, torch.float32)


def _is_simple(gradient: Tensor) -> bool:
    return gradient.dtype is torch.float32 and gradient.layout is torch.strided and is_readable(gradient)


def _measure(primary: Sequence[Tensor], auxiliary: Sequence[Tensor]) -> Gram | None:
    """Norms and cosine, if both norms are ordinary; float64 has room for any float32 squared."""
    sums = torch.zeros(3, dtype=torch.float64, device="cpu")
    for g_R, g_T in zip(_pieces(primary), _pieces(auxiliary), strict=True):
        x, y = g_R.double(), g_T.double()
        sums += torch.stack((torch.dot(x, x), torch.dot(y, y), torch.dot(x, y)))
    n_R, n_T = sums[:2].sqrt()
    if not all(1.0 / ORDINARY < norm < ORDINARY for norm in (n_R.item(), n_T.item())):
        return None
    return Gram(n_R, n_T, (sums[2] / (n_R * n_T)).clamp(-1.0, 1.0))


def _pieces(gradients: Sequence[Tensor]) -> Iterator[Tensor]:
    return (piece for gradient in gradients for piece in gradient.reshape(-1).split(PIECE))


def _factor(length: Setting, norm: Tensor) -> float:
    """``length / n`` within float32's range."""
    largest = torch.finfo(torch.float32).max
    return min(max(float(length / norm), -largest), largest)
