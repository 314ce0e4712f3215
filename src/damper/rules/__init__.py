"""Gradient-combination rules: ``(primary, auxiliary, **settings) -> combined``, one small file each.

Every rule is batched over leading axes (``[..., n]``), pure, and free of branches on tensor values. A rule with memory
takes ``state=None`` and returns ``(combined, state)``. Where the auxiliary gradient is zero or not finite, every rule
returns the primary, bit for bit.
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from torch import Tensor

from damper.errors import DamperError
from damper.rules._report import GradientReport, report
from damper.rules._span import Rule
from damper.rules.damper import combine, damper
from damper.rules.scalarization import scalarization

RULES: dict[str, Rule] = {
    "damper": damper,
    "scalarization": scalarization,
}

__all__ = ["RULES", "GradientReport", "combine", "combine_reported", "find", "has_memory", "settings_of"]


def find(rule: str | Rule) -> Rule:
    """The rule of that name, or the callable itself."""
    if callable(rule):
        return rule
    if rule not in RULES:
        close = difflib.get_close_matches(str(rule), RULES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(RULES))}."
        raise DamperError(f"rule must name one of damper.rules.RULES, but {rule!r} was given: {hint}")
    return RULES[rule]


def has_memory(rule: str | Rule) -> bool:
    """Whether the rule takes and returns a state."""
    return "state" in inspect.signature(find(rule)).parameters


def settings_of(rule: str | Rule) -> dict[str, Any]:
    """The rule's settings with their defaults."""
    parameters = list(inspect.signature(find(rule)).parameters.values())[2:]
    return {p.name: p.default for p in parameters if p.name != "state" and p.kind is not p.VAR_KEYWORD}


def combine_reported(
    rule: str | Rule, primary: Tensor, auxiliary: Tensor, state: Any = None, **settings: Any
) -> tuple[Tensor, GradientReport]:
    """Apply any rule, with or without memory, and report what it did (the new memory is ``report.state``)."""
    rule = find(rule)
    if has_memory(rule):
        combined, state = rule(primary, auxiliary, state=state, **settings)
    else:
        combined, state = rule(primary, auxiliary, **settings), None
    return combined, report(rule, primary, auxiliary, combined, state, **settings)
