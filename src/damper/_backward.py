"""``damper.backward``: the combined gradient of two losses, in place of ``loss.backward()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from damper._checks import Setting
from damper.errors import DamperError
from damper.rules import GradientReport, Rule, combine_single, find, has_memory

Gradients = Sequence[Tensor | None]  # one per parameter; None where the loss does not use it


def backward(
    primary_loss: Tensor,
    auxiliary_loss: Tensor,
    parameters: nn.Module | Tensor | Iterable[Tensor],
    eta: Setting | None = None,
    rule: str | Rule = "damper",
    state: Any = None,
    *,
    retain_graph: bool = False,
    process_group: distributed.ProcessGroup | Literal["auto"] | None = "auto",
    **settings: Any,
) -> GradientReport:
    r"""Differentiate both losses, combine the gradients, and set ``.grad`` of the given parameters.

    With ``g_R = ∇L_R`` and ``g_T = ∇L_T`` over all parameters flattened, ``.grad`` becomes
    ``rule(g_R, g_T)``; for DAMPER that is ``g_R + (n_R/n_T) q^(1−η) g̃_T``. Nothing else receives a
    gradient (a critic that the actor's loss passes through stays untouched). ``.grad`` is
    overwritten, not accumulated: no ``zero_grad`` is needed.

    Args:
        primary_loss: the loss that has priority, a scalar.
        auxiliary_loss: the second loss, a scalar; may share the graph of the first.
        parameters: what to differentiate with respect to: ``actor.parameters()``, or the actor
            itself. A parameter unused by one loss counts as zero gradient there; one unused by
            both, or frozen, gets ``.grad`` None.
        eta: DAMPER's η in [0, 1], 1 by default; only for rules that have it.
        rule: a name in ``damper.rules.RULES`` or a callable with the same interface.
        state: the memory of a rule that has one: the previous call's ``report.state``.
        retain_graph: keep the graph of both losses for another differentiation, as in
            ``Tensor.backward``.
        process_group: the processes over which the two gradients, and the auxiliary loss's value,
            are averaged before they are combined. "auto" is the group of the
            ``DistributedDataParallel`` module given as ``parameters``; None does not average.
        **settings: the rule's own settings.

    Returns:
        A ``GradientReport`` of tensors. The call does not wait for the device, unless gradients are
        averaged and
            neither loss uses some parameter: then it must learn whether another process uses it.
    """
    given, rule = _tensors(parameters), find(rule)
    keep_all = has_memory(rule)
    leaves = _leaves(given, keep_all)
    group = _group(parameters) if process_group == "auto" else process_group
    if eta is not None:
        settings["eta"] = eta
    primary = _gradients("primary_loss", primary_loss, leaves, retain=True)
    auxiliary = _gradients("auxiliary_loss", auxiliary_loss, leaves, retain=retain_graph)
    value = auxiliary_loss.detach().reshape(())
    if group is not None:
        (primary, auxiliary), value = _average([primary, auxiliary], value, leaves, group)
    used = _used(primary, auxiliary)
    taken = _taken(used, keep_all)
    g_R, g_T = ([_or_zeros(grads[i], leaves[i]) for i in taken] for grads in (primary, auxiliary))
    combined, report = combine_single(rule, g_R, g_T, state, auxiliary_loss=value, **settings)
    for leaf in given:  # frozen ones too: the optimiser would apply their old gradient again
        leaf.grad = None
    for i, part in zip(taken, combined, strict=True):
        leaves[i].grad = part if used[i] else None
    return report


def backward_auxiliary(
    auxiliary_loss: Tensor,
    parameters: nn.Module | Tensor | Iterable[Tensor],
    rule: str | Rule = "damper",
    state: Any = None,
    *,
    shared: Sequence[Tensor] = (),
    process_group: distributed.ProcessGroup | None = None,
    **settings: Any,
) -> GradientReport:
    """Combine an auxiliary loss's gradient with the ``.grad`` that ``backward()`` left, in place.

    For a primary loss that also trains parameters which the auxiliary loss must not touch, as PPO's
    loss trains the value function: parameters not given keep their gradient.

    Args:
        auxiliary_loss: as in ``backward``.
        parameters: the parameters whose gradients to combine; a ``.grad`` of None counts as zero.
        rule: as in ``backward``.
        state: likewise.
        shared: parameters that the primary loss also trains for another purpose, such as a features
            extractor shared with PPO's value function. The norm of their primary gradient is no
            scale for the auxiliary one, so they take the factor that the rule found on
            ``parameters``; the added part is capped at the norm of their primary gradient and does
            not oppose it.
        process_group: the processes over which to average the auxiliary gradient and the loss's
            value; the primary gradient already must be.
        **settings: the rule's own settings.
    """
    leaves = [*_leaves(_tensors(parameters), has_memory(rule)), *shared]
    auxiliary = _gradients("auxiliary_loss", auxiliary_loss, leaves, retain=False)
    value = auxiliary_loss.detach().reshape(())
    if process_group is not None:
        # A parameter with a primary gradient is used in every process: there is no need to wait to
        # learn it.
        known = zip(_left(leaves), auxiliary, leaves, strict=True)
        auxiliary = [g if p is None else _or_zeros(g, leaf) for p, g, leaf in known]
        (auxiliary,), value = _average([auxiliary], value, leaves, process_group)
    return combine_gradients(
        auxiliary, leaves, rule, state, value, shared_count=len(shared), **settings
    )


def auxiliary_gradients(loss: Tensor, leaves: Sequence[Tensor]) -> Gradients:
    """Gradients of an auxiliary loss that shares the primary one's graph, still to be used."""
    return _gradients("auxiliary_loss", loss, list(leaves), retain=True)


def combine_gradients(
    auxiliary: Gradients,
    leaves: Sequence[Tensor],
    rule: str | Rule = "damper",
    state: Any = None,
    auxiliary_loss: Tensor | None = None,
    *,
    shared_count: int = 0,
    **settings: Any,
) -> GradientReport:
    """``backward_auxiliary`` after its gradients; the last ``shared_count`` leaves are shared."""
    primary = _left(leaves)
    used, own_count = _used(primary, auxiliary), len(leaves) - shared_count
    if not any(used[:own_count]):
        raise DamperError(
            "parameters must include one that a loss depends on, but the losses depend only on "
            "those in shared, whose "
            "factor the rule finds on the others: keep a layer of the actor alone trainable, or "
            "pass the shared ones "
            "as parameters."
        )
    taken = _taken(used, has_memory(rule))
    g_R, g_T = ([_or_zeros(grads[i], leaves[i]) for i in taken] for grads in (primary, auxiliary))
    n = sum(i < own_count for i in taken)
    combined, report = combine_single(
        rule, g_R[:n], g_T[:n], state, auxiliary_loss=auxiliary_loss, **settings
    )
    if n < len(taken):
        factor = torch.where(report.guard, 0.0, report.weight / report.norm_ratio)
        combined += combine_single("damper", g_R[n:], [factor * g for g in g_T[n:]], eta=0.0)[0]
    for i, part in zip(taken, combined, strict=True):
        leaves[i].grad = part if used[i] else None
    return report


@contextmanager
def after_backward(parameters: Sequence[Tensor], function: Callable[[], None]) -> Iterator[None]:
    """Call ``function`` at the end of every ``loss.backward()`` that reaches the parameters.

    For somebody else's training loop, which clips the gradients before the optimizer's hooks see
    them. The function may differentiate too; its exceptions are raised by ``loss.backward()``.
    """
    waiting = False

    def call() -> None:
        nonlocal waiting
        try:
            with torch.enable_grad():
                function()
        finally:
            waiting = False

    def queue(_: Tensor) -> None:
        nonlocal waiting
        if not waiting:
            waiting = True
            Variable._execution_engine.queue_callback(
                call
            )  # DistributedDataParallel and FSDP use it too

    hooks = [parameter.register_post_accumulate_grad_hook(queue) for parameter in parameters]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensors(parameters: nn.Module | Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The parameters as a list without duplicates."""
    if isinstance(parameters, nn.Module):
        parameters = parameters.parameters()
    single = isinstance(parameters, Tensor) or not isinstance(parameters, Iterable)
    given: list[Any] = [parameters] if single else list(parameters)
    for item in given:
        if not isinstance(item, Tensor):
            raise DamperError(
                f"parameters must be tensors, but a {type(item).__name__} was given: pass "
                "module.parameters()."
            )
    return list(dict.fromkeys(given))


def _leaves(given: list[Tensor], keep_all: bool) -> list[Tensor]:
    """The trainable parameters, or all with ``keep_all``, as a rule's memory needs them."""
    for one in given:
        if not one.is_leaf:
            raise DamperError(
                "parameters must be leaf tensors, such as module.parameters(), but one was "
                "computed from other "
                "tensors: pass the two losses first, then the parameters."
            )
    leaves = [leaf for leaf in given if leaf.requires_grad]
    if not leaves:
        raise DamperError(
            "parameters must include a tensor with requires_grad, but none was given (an exhausted "
            "iterator?)."
        )
    if len(devices := {leaf.device for leaf in leaves}) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise DamperError(
            f"parameters must be on one device, but are on {names}: move the module to one of them."
        )
    return given if keep_all else leaves


def _group(parameters: object) -> distributed.ProcessGroup | None:
    """The process group of a DistributedDataParallel module; None for a single process."""
    modules = parameters.modules() if isinstance(parameters, nn.Module) else ()
    groups = {
        module.process_group for module in modules if isinstance(module, DistributedDataParallel)
    }
    if len(groups) == 1:
        return groups.pop()
    # Bare parameters do not tell their group, and processes that combine only their own gradients
    # drift apart.
    if (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    ):
        raise DamperError(
            "process_group must be given when torch.distributed runs "
            f"{distributed.get_world_size()} processes, "
            "unless parameters is one DistributedDataParallel module: pass that module instead of "
            "its parameters(), "
            "or process_group=torch.distributed.group.WORLD, or None if each process trains by "
            "itself."
        )
    return None


def _gradients(name: str, loss: Tensor, leaves: list[Tensor], retain: bool) -> Gradients:
    """Gradients of a loss; raises where there are none, rather than train on the other alone."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        given = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise DamperError(
            f"{name} must be a scalar tensor, but {given} was given: reduce it with mean() or "
            "sum()."
        )
    if not loss.requires_grad:
        raise DamperError(
            f"{name} must depend on the parameters, but has no graph: was it detached?"
        )
    trained = [leaf for leaf in leaves if leaf.requires_grad]
    computed = iter(torch.autograd.grad(loss, trained, retain_graph=retain, allow_unused=True))
    gradients = [next(computed) if leaf.requires_grad else None for leaf in leaves]
    if all(gradient is None for gradient in gradients):
        raise DamperError(
            f"{name} must depend on the parameters, but depends on none of those given: check for "
            "a detach()."
        )
    if any(gradient is not None and gradient.layout is not torch.strided for gradient in gradients):
        raise DamperError(
            f"{name} must have dense gradients, but has a sparse one: leave sparse=True out."
        )
    return gradients


def _average(
    losses: Sequence[Gradients],
    value: Tensor,
    leaves: list[Tensor],
    group: distributed.ProcessGroup,
) -> tuple[list[Gradients], Tensor]:
    """Means of the losses' gradients and of a value over the processes, in one all-reduce.

    A gradient is None where no process uses the parameter.
    """
    processes = distributed.get_world_size(group)
    if processes < 1:
        raise DamperError(
            "process_group must include this process, but does not: pass the group that trains "
            "this module."
        )
    used = _used(*losses)
    own = [
        _or_zeros(g, leaf).reshape(-1)
        for grads in losses
        for g, leaf in zip(grads, leaves, strict=True)
    ]
    device = leaves[0].device
    flags = torch.tensor(used, dtype=leaves[0].dtype, device=device)
    flat = torch.cat([*own, flags, value.to(device).reshape(1)]) / processes
    distributed.all_reduce(flat, group=group)
    *means, shares, mean_value = flat.split([*map(len, own), len(used), 1])
    # A parameter used here counts as used, and a frozen one as unused; only for the rest must it
    # wait for the sum.
    known = all(there or not leaf.requires_grad for there, leaf in zip(used, leaves, strict=True))
    used = used if known else [share > 0 for share in shares.tolist()]
    gradients: list[Gradients] = [
        [
            m.view_as(leaf).to(leaf.dtype) if there else None
            for m, leaf, there in zip(part, leaves, used, strict=True)
        ]
        for part in (means[i : i + len(leaves)] for i in range(0, len(means), len(leaves)))
    ]
    return gradients, mean_value.reshape(())


def _left(leaves: Sequence[Tensor]) -> Gradients:
    """What a ``backward()`` left in ``.grad``; a frozen parameter's is of an earlier one."""
    return [leaf.grad if leaf.requires_grad else None for leaf in leaves]


def _used(*losses: Gradients) -> list[bool]:
    return [any(g is not None for g in grads) for grads in zip(*losses, strict=True)]


def _taken(used: list[bool], keep_all: bool) -> list[int]:
    """Indices of the parameters that the rule sees: those used, or all."""
    return [i for i, there in enumerate(used) if there or keep_all]


def _or_zeros(gradient: Tensor | None, leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if gradient is None else gradient
