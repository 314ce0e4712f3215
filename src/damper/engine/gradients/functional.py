"""Gradients by ``torch.func``, which ``torch.compile`` traces into one graph; ``autograd.grad`` would break it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from damper.engine.gradients.objectives import Logs, LossAndLogs
from damper.engine.networks.layout import Layout, Weights, weight_list, weights_from_list

Network = TypeVar("Network")


def func_gradients(
    losses: Sequence[Callable[[Network], LossAndLogs]],
    bind: Callable[[Weights], Network],
    layout: Layout,
    flat_params: Tensor,
) -> tuple[list[Tensor], Logs]:
    """``autograd.autograd_gradients`` by ``torch.func``: flat gradients ``[M, n]`` of each loss, and all their logs.

    Each loss runs its own forward pass: a shared one would have to send zeros backwards through the other's graph.
    """
    tensors = tuple(weight_list(layout.unflatten(flat_params)))
    gradients: list[Tensor] = []
    all_logs: Logs = {}
    for loss in losses:

        def total(*given: Tensor, loss: Callable[[Network], LossAndLogs] = loss) -> LossAndLogs:
            value, logs = loss(bind(weights_from_list(layout, given)))
            return value.sum(), logs

        gradient, logs = torch.func.grad(total, argnums=tuple(range(len(tensors))), has_aux=True)(*tensors)
        gradients.append(layout.flatten(gradient))
        all_logs |= logs
    return gradients, all_logs


def output_gradients(
    loss: Callable[[Sequence[Tensor]], LossAndLogs], outputs: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], Logs]:
    """``∂ Σ L / ∂ outputs`` of a loss that is a function of networks' outputs, and its logs."""

    def total(*given: Tensor) -> LossAndLogs:
        value, logs = loss(given)
        return value.sum(), logs

    gradients, logs = torch.func.grad(total, argnums=tuple(range(len(outputs))), has_aux=True)(*outputs)
    return gradients, logs
