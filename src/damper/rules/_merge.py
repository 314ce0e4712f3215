"""One rule per agent, for agents of a population that share their losses but not the rule.

A two-vector rule is two numbers per agent (``_two_vector``), so several rules in one batch cost a
few operations on ``[P]`` tensors, while forward passes, gradients and optimiser steps are shared.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import torch
from torch import Tensor

from damper._checks import Setting, check_range
from damper.errors import DamperError
from damper.rules._two_vector import PairStats, Rule, two_vector_rule

NO_RULE = "plain"  # the primary gradient alone


def can_share_population(rule: Rule | None) -> bool:
    """Whether its agents can share a batch with other rules': it keeps the primary, no memory."""
    return bool(getattr(rule, "keeps_primary", False))


def merge_rules(name: str, rules: Mapping[str, Rule]) -> Rule:
    """Make one rule from a comma-separated list: agent i gets the rule at index ``choice[i]``.

    ``name`` lists names in ``rules``, or "plain" for the primary gradient alone. The rule takes the
    settings of all of them, and ``choice``, a number or a ``[P]`` tensor.
    """
    names = name.split(",")  # may contain a name twice
    chosen = {one: None if one == NO_RULE else rules.get(one) for one in names}
    for one, rule in chosen.items():
        if one != NO_RULE and not can_share_population(rule):
            able = ", ".join(known for known, other in rules.items() if can_share_population(other))
            raise DamperError(
                f"rules of one population must be among {NO_RULE}, {able}, but {one!r} was given."
            )
    own = {
        one: list(inspect.signature(rule).parameters.values())[2:] if rule else []
        for one, rule in chosen.items()
    }

    def choose(stats: PairStats, choice: Setting = 0, **settings: Setting) -> tuple[Tensor, Tensor]:
        check_range("choice", choice, 0, len(names) - 1)
        r = s = torch.zeros_like(stats.n_R)
        for index, one in enumerate(names):
            if (rule := chosen[one]) is not None:
                settings_of_rule = {p.name: settings.get(p.name, p.default) for p in own[one]}
                along_R, along_T = rule.coefficients(stats, **settings_of_rule)  # type: ignore[attr-defined]
                here = torch.as_tensor(choice, device=r.device) == index
                r, s = torch.where(here, along_R, r), torch.where(here, along_T, s)
        return r, s

    first = list(inspect.signature(choose).parameters.values())[:2]
    union = {p.name: p for parameters in own.values() for p in parameters}
    choose.__signature__ = inspect.Signature([*first, *union.values()])  # type: ignore[attr-defined]
    choose.__name__ = name
    return two_vector_rule()(choose)
