"""What happened when two gradients were combined: the numbers people plot to see conflict."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from damper.rules._span import Rule, measure, unit, working


class GradientReport(NamedTuple):
    """Diagnostics of one combination, one number per agent; tensors on the gradients' device, never read here.

    Attributes:
        cosine: ``c = ⟨g_R, g_T⟩ / (n_R n_T)``; 0 where the guard holds.
        norm_ratio: ``n_T / n_R``.
        conflict: whether ``c < 0``.
        weight: length added along ``g_T``'s direction over ``n_R``: DAMPER's ``w = q^(1−η)``, scalarization's
            ``λ n_T/n_R``. For rules outside the two gradients' span, ``‖g − g_R‖ / n_R``.
        guard: whether a norm was zero, too small or not finite, so that DAMPER returns ``g_R``.
        state: the rule's memory after the step; hand it to the next call. None for rules without memory.
    """

    cosine: Tensor
    norm_ratio: Tensor
    conflict: Tensor
    weight: Tensor
    guard: Tensor
    state: Any = None


def report(
    rule: Rule, primary: Tensor, auxiliary: Tensor, combined: Tensor, state: Any, **settings: Any
) -> GradientReport:
    """The diagnostics of ``combined = rule(primary, auxiliary, **settings)``."""
    g_R, g_T = working(primary), working(auxiliary)
    n_R, n_T, c = gram = measure(g_R, g_T).gram
    guard = (n_R == 0) | (n_T == 0)
    if hasattr(rule, "lengths"):
        added = torch.zeros_like(n_R) + rule.lengths(gram, **settings)[1]
    else:
        change = unit(working(combined) - g_R)
        added = change.m * change.k

    def over_primary(length: Tensor) -> Tensor:
        return torch.where(guard, 0.0, length / torch.where(guard, 1.0, n_R)).to(g_R.dtype)

    return GradientReport(c.to(g_R.dtype), over_primary(n_T), c < 0, over_primary(added), guard, state)
