"""One line in place of ``actor_loss.backward()``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from damper.errors import DamperError
from damper.rules import GradientReport, combine_single, find, settings_of
from damper.rules._settings import Setting
from damper.rules._span import Rule


def backward(
    primary_loss: Tensor,
    auxiliary_loss: Tensor,
    parameters: Tensor | Iterable[Tensor],
    eta: Setting = 1.0,
    rule: str | Rule = "damper",
    state: Any = None,
    **settings: Any,
) -> GradientReport:
    r"""Differentiate both losses, combine the gradients, and set ``.grad`` of the given parameters.

    With ``g_R = ∇L_R`` and ``g_T = ∇L_T`` over all parameters flattened, ``.grad`` becomes ``rule(g_R, g_T)``; for
    DAMPER that is ``g_R + (n_R/n_T) q^(1−η) g̃_T``. Nothing else receives a gradient (a critic that the actor's loss
    passes through stays untouched), and ``.grad`` is set, not added to: no ``zero_grad`` is needed.

    Args:
        primary_loss: the loss that has priority, a scalar.
        auxiliary_loss: the loss to serve where it does not oppose the first, a scalar; may share its graph.
        parameters: what to differentiate with respect to, e.g. ``actor.parameters()``. A parameter unused by one
            loss counts as zero gradient there; one unused by both keeps ``.grad`` None.
        eta: DAMPER's η in [0, 1]; rules without η ignore it.
        rule: a name in ``damper.rules.RULES`` or a callable with the same interface.
        state: the memory of a rule that has one: the previous call's ``report.state``.
        **settings: the rule's own settings.

    Returns:
        A ``GradientReport`` of tensors; nothing waits for the device.
    """
    leaves = _leaves(parameters)
    rule = find(rule)
    if "eta" in settings_of(rule):
        settings["eta"] = eta
    primary = _gradients("primary_loss", primary_loss, leaves, retain=True)
    auxiliary = _gradients("auxiliary_loss", auxiliary_loss, leaves, retain=False)
    used = [i for i in range(len(leaves)) if primary[i] is not None or auxiliary[i] is not None]
    if not used:
        raise DamperError("parameters must take part in a loss, but neither loss depends on any: check for a detach().")
    g_R, g_T = ([_or_zeros(grads[i], leaves[i]) for i in used] for grads in (primary, auxiliary))
    combined, report = combine_single(rule, g_R, g_T, state, **settings)
    for leaf in leaves:
        leaf.grad = None
    for i, part in zip(used, combined, strict=True):
        leaves[i].grad = part
    return report


def _leaves(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The parameters that can have a gradient, each once."""
    single = isinstance(parameters, Tensor) or not isinstance(parameters, Iterable)
    given: list[Any] = [parameters] if single else list(parameters)
    for item in given:
        if not isinstance(item, Tensor):
            raise DamperError(
                f"parameters must be tensors, but a {type(item).__name__} was given: pass module.parameters()."
            )
    leaves = [leaf for leaf in dict.fromkeys(given) if leaf.requires_grad]
    if not leaves:
        raise DamperError("parameters must hold a tensor with requires_grad, but none was given (a used-up iterator?).")
    if len(devices := {leaf.device for leaf in leaves}) > 1:
        found = ", ".join(sorted(map(str, devices)))
        raise DamperError(f"parameters must be on one device, but are on {found}: move the module to one of them.")
    return leaves


def _gradients(name: str, loss: Tensor, leaves: list[Tensor], retain: bool) -> tuple[Tensor | None, ...]:
    """Gradients with None for unused parameters; a loss that is a constant has none at all."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        given = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise DamperError(f"{name} must be a scalar tensor, but {given} was given: reduce it with mean() or sum().")
    if not loss.requires_grad:
        if name == "primary_loss":  # as loss.backward() would, rather than train on the auxiliary alone
            raise DamperError("primary_loss must depend on the parameters, but has no graph: was it detached?")
        return (None,) * len(leaves)
    gradients: tuple[Tensor | None, ...] = torch.autograd.grad(loss, leaves, retain_graph=retain, allow_unused=True)
    return gradients


def _or_zeros(gradient: Tensor | None, leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if gradient is None else gradient
