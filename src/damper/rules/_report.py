"""Diagnostics of combined gradients: the numbers to plot to see conflict."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from damper.errors import DamperError
from damper.rules._two_vector import PairStats, Rule, measure, unit, working


class GradientReport(NamedTuple):
    """Diagnostics of one combination, one number per agent; tensors on the gradients' device.

    Attributes:
        cosine: ``c = ⟨g_R, g_T⟩ / (n_R n_T)``; 0 where the guard holds.
        norm_ratio: ``n_T / n_R``.
        conflict: whether ``c < 0``.
        weight: length added along ``g_T``'s direction, divided by ``n_R``: DAMPER's
            ``w = q^(1−η)``, scalarization's ``λ n_T/n_R``. For rules outside the two gradients'
            span, ``‖g − g_R‖ / n_R``.
        guard: whether a norm was zero, too small or not finite, so that DAMPER returns ``g_R``.
        state: the rule's memory after the step; pass it to the next call. None for rules without
            memory.
    """

    # To add a field: put it before ``state``, and compute it in ``_report`` and in
    # ``_cpu_fast._apply_ordinary``.
    cosine: Tensor
    norm_ratio: Tensor
    conflict: Tensor
    weight: Tensor
    guard: Tensor
    state: Any = None

    def logged(self) -> dict[str, Tensor]:
        """The values to log, by name; averaged over updates, ``conflict`` is a rate."""
        return {
            "conflict": self.conflict,
            "cosine": self.cosine,
            "norm_ratio": self.norm_ratio,
            "weight": self.weight,
        }


def apply_reported(
    rule: Rule, primary: Tensor, auxiliary: Tensor, state: Any, memory: bool, **settings: Any
) -> tuple[Tensor, GradientReport]:
    """Apply a rule (with ``memory`` or without) and report what it did.

    Two-vector rules return their norms and cosine, so nothing is measured twice. ``settings``
    include the auxiliary loss for a rule that reads it.
    """
    if hasattr(rule, "explained"):
        combined, stats, added = rule.explained(primary, auxiliary, **settings)
        return combined, _report(
            stats, torch.zeros_like(stats.n_R) + added, working(primary).dtype, None
        )
    before = _versions(primary, auxiliary)
    answer = (
        rule(primary, auxiliary, state=state, **settings)
        if memory
        else (rule(primary, auxiliary, **settings), None)
    )
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise DamperError(
            f"rule must return (combined, state), because it has a state argument, but returned a "
            f"{type(answer).__name__}: return the new state too."
        )
    if _versions(primary, auxiliary) != before:
        raise DamperError(
            "rule must leave both gradients as they are, but changed one in place: return a new "
            "tensor."
        )
    combined, state = answer
    if not isinstance(combined, Tensor) or combined.shape != primary.shape:
        given = (
            f"shape {tuple(combined.shape)}"
            if isinstance(combined, Tensor)
            else f"a {type(combined).__name__}"
        )
        raise DamperError(
            f"rule must return a gradient of primary's shape {tuple(primary.shape)}, but returned "
            f"{given}: "
            "combine the two entry by entry (a swept setting is [P]: unsqueeze(-1) it); only a "
            "rule with a state "
            "argument returns (combined, state)."
        )
    if not combined.is_floating_point() or combined.device != primary.device:
        raise DamperError(
            f"rule must return a floating-point gradient on primary's device {primary.device}, but "
            "returned "
            f"{combined.dtype} on {combined.device}: cast or move it."
        )
    g_R = working(primary)
    change = unit(working(combined) - g_R)
    return combined, _report(
        measure(g_R, working(auxiliary)).stats, change.m * change.k, g_R.dtype, state
    )


def _versions(*gradients: Tensor) -> tuple[int, ...]:
    """Version counters of the gradients; torch keeps none while tracing and in inference mode."""
    if torch.compiler.is_compiling():
        return ()
    return tuple(g._version for g in gradients if not g.is_inference())


def _report(stats: PairStats, added: Tensor, dtype: torch.dtype, state: Any) -> GradientReport:
    n_R, n_T, c = stats
    guard = (n_R == 0) | (n_T == 0)
    over = torch.where(guard, 0.0, 1.0 / torch.where(guard, 1.0, n_R))
    return GradientReport(
        cosine=c.to(dtype),
        norm_ratio=(n_T * over).to(dtype),
        conflict=c < 0,
        weight=(added * over).to(dtype),
        guard=guard,
        state=state,
    )
