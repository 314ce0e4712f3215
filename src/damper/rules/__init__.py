"""Gradient-combination rules: ``(primary, auxiliary, **settings) -> combined``, one file each.

Every rule is batched over leading axes (``[..., n]``), pure, and free of branches on tensor values.
A rule with memory takes ``state=None`` and returns ``(combined, state)``; one that reads the
auxiliary loss's value requires it as the keyword ``auxiliary_loss``, one per agent. Where the
auxiliary gradient is zero or not finite, every rule returns the primary, bit for bit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from damper._checks import Setting
from damper.errors import DamperError, did_you_mean
from damper.rules._cpu_fast import apply_rows, apply_single
from damper.rules._merge import can_share_population, merge_rules
from damper.rules._report import GradientReport, apply_reported
from damper.rules._two_vector import Rule
from damper.rules.bloop import bloop
from damper.rules.cagrad import cagrad
from damper.rules.cosine_gating import cosine_gating
from damper.rules.damper import combine, damper
from damper.rules.damper_fading import damper_fading
from damper.rules.dynamic_barrier import dynamic_barrier
from damper.rules.gcr_ppo import gcr_ppo
from damper.rules.gradnorm import gradnorm
from damper.rules.metabalance import metabalance
from damper.rules.mgda import mgda
from damper.rules.nash_mtl import nash_mtl
from damper.rules.pcgrad import pcgrad
from damper.rules.pegrad import pegrad
from damper.rules.scalarization import scalarization
from damper.rules.unconditional_projection import unconditional_projection
from damper.rules.unconditional_sum import unconditional_sum

RULES: dict[str, Rule] = {
    "damper": damper,
    "damper-fading": damper_fading,
    "scalarization": scalarization,
    "unconditional-sum": unconditional_sum,
    "unconditional-projection": unconditional_projection,
    "pegrad": pegrad,
    "pcgrad": pcgrad,
    "cagrad": cagrad,
    "mgda": mgda,
    "gradnorm": gradnorm,
    "cosine-gating": cosine_gating,
    "dynamic-barrier": dynamic_barrier,
    "gcr-ppo": gcr_ppo,
    "bloop": bloop,
    "metabalance": metabalance,
    "nash-mtl": nash_mtl,
}

__all__ = [
    "RULES",
    "GradientReport",
    "Rule",
    "apply_reported",
    "apply_rows",
    "can_share_population",
    "combine",
    "combine_reported",
    "combine_single",
    "find",
    "has_memory",
    "initial_state",
    "reads_loss",
    "rebuild_state",
    "settings_of",
    "state_tensors",
]


def find(rule: str | Rule) -> Rule:
    """The rule of that name; a callable as it is; for "a,b" one rule per agent."""
    if callable(rule):
        return rule
    if isinstance(rule, str) and "," in rule:
        return _merged(rule)
    if not isinstance(rule, str) or rule not in RULES:
        hint = did_you_mean(str(rule), RULES, f"choose one of {', '.join(sorted(RULES))}.")
        raise DamperError(
            f"rule must name one of damper.rules.RULES, but {rule!r} was given: {hint}"
        )
    return RULES[rule]


@functools.cache
def _merged(names: str) -> Rule:
    return merge_rules(names, RULES)


def _parameters(rule: Rule) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(rule).parameters
    except ValueError:  # a built-in function, such as torch.add, has no signature
        return {}


def has_memory(rule: str | Rule) -> bool:
    """Whether the rule takes and returns a state."""
    return "state" in _parameters(find(rule))


def reads_loss(rule: str | Rule) -> bool:
    """Whether the rule takes the value of the auxiliary loss."""
    return "auxiliary_loss" in _parameters(find(rule))


def settings_of(rule: str | Rule) -> dict[str, Any]:
    """The rule's settings with their defaults, ``inspect.Parameter.empty`` where there is none."""
    parameters = list(_parameters(find(rule)).values())[2:]
    return {
        p.name: p.default
        for p in parameters
        if p.name not in ("state", "auxiliary_loss") and p.kind is not p.VAR_KEYWORD
    }


def combine_reported(
    rule: str | Rule,
    primary: Tensor,
    auxiliary: Tensor,
    state: Any = None,
    *,
    auxiliary_loss: Setting | None = None,
    **settings: Any,
) -> tuple[Tensor, GradientReport]:
    """Apply any rule and report what it did.

    Args:
        rule: a name in ``RULES`` or a callable.
        primary: ``g_R``, [..., n].
        auxiliary: ``g_T``, likewise.
        state: the memory of a rule that has one, the previous call's ``report.state``.
        auxiliary_loss: the value of the loss whose gradient is ``g_T``, one per agent; needed by
            rules that read it (``reads_loss``), ignored for the others.
        **settings: the rule's own settings.
    """
    rule = find(rule)
    _check_settings(rule, state, settings)
    settings |= _loss_argument(rule, auxiliary_loss)
    return apply_reported(rule, primary, auxiliary, state, has_memory(rule), **settings)


def combine_single(
    rule: str | Rule,
    primary: Sequence[Tensor],
    auxiliary: Sequence[Tensor],
    state: Any = None,
    *,
    auxiliary_loss: Setting | None = None,
    **settings: Any,
) -> tuple[list[Tensor], GradientReport]:
    """``combine_reported`` for one agent, parameter by parameter: faster on a CPU.

    For eager code: on a CPU it reads the gradients' norms, which is a graph break under
        ``torch.compile``.
    """
    rule = find(rule)
    _check_settings(rule, state, settings)
    settings |= _loss_argument(rule, auxiliary_loss)
    quick = apply_single(rule, primary, auxiliary, **settings)
    if quick is not None:
        return quick
    # torch.cat promotes to the widest dtype among the parameters.
    g_R, g_T = (
        torch.cat([gradient.reshape(-1) for gradient in gradients])
        for gradients in (primary, auxiliary)
    )
    combined, report = apply_reported(rule, g_R, g_T, state, has_memory(rule), **settings)
    parts = combined.split([gradient.numel() for gradient in primary])
    # Copies, because a user's rule may keep the tensor it returned.
    return [
        part.view_as(g).to(g.dtype, copy=True) for part, g in zip(parts, primary, strict=True)
    ], report


def initial_state(rule: str | Rule, like: Tensor, **settings: Any) -> Any:
    """A rule's state after a step on zero gradients and losses; None for rules without memory."""
    if not has_memory(rule):
        return None
    zeros = torch.zeros_like(like)
    loss = zeros.new_zeros(zeros.shape[:-1])
    state = combine_reported(rule, zeros, zeros, auxiliary_loss=loss, **settings)[1].state
    return rebuild_state(type(state), [tensor.clone() for tensor in state_tensors(state)])


def state_tensors(state: Any) -> tuple[Tensor, ...]:
    """The tensors of a rule's state: a tensor, a (named) tuple or list of tensors, or None."""
    if state is None:
        return ()
    tensors = (
        (state,)
        if isinstance(state, Tensor)
        else tuple(state)
        if isinstance(state, tuple | list)
        else None
    )
    if tensors is None or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise DamperError(
            f"a rule's state must be a tensor or a tuple of tensors, but {type(state).__name__} "
            "was returned: keep "
            "what it remembers in tensors, so that it can be saved."
        )
    return tensors


def rebuild_state(kind: type, tensors: Sequence[Tensor]) -> Any:
    """The inverse of ``state_tensors``: a state of type ``kind`` from its tensors."""
    if not tensors:
        return None
    if issubclass(kind, Tensor):
        return tensors[0]
    return (
        kind(tensors) if kind in (tuple, list) else kind(*tensors)
    )  # a named tuple takes its fields one by one


def _loss_argument(rule: Rule, auxiliary_loss: Setting | None) -> dict[str, Setting]:
    """The auxiliary loss as a keyword argument, for a rule that reads it."""
    if not reads_loss(rule):
        return {}
    if auxiliary_loss is None:
        title = getattr(rule, "__name__", "the rule")
        raise DamperError(
            f"auxiliary_loss must be given for {title}, which reads the value of the loss whose "
            "gradient is the auxiliary, but was not: pass it, or use damper.backward, which does."
        )
    return {"auxiliary_loss": auxiliary_loss}


def _check_settings(rule: Rule, state: Any, settings: dict[str, Any]) -> None:
    """Raise for a setting that the rule does not have, or a state for a rule without memory."""
    title = getattr(rule, "__name__", "the rule")
    if state is not None and not has_memory(rule):
        given = type(state).__name__
        raise DamperError(
            f"state must be left out for {title}, which has no memory, but a {given} was given."
        )
    if any(p.kind is p.VAR_KEYWORD for p in _parameters(rule).values()):
        return
    known = settings_of(rule)
    for name in settings:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise DamperError(f"{name} is not a setting of {title}: {has}.")
