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
    loss: Callable[[Network], LossAndLogs],
    bind: Callable[[Weights], Network],
    layout: Layout,
    flat_params: Tensor,
) -> tuple[Tensor, Logs]:
    """The flat gradient ``[M, n]`` of a loss on networks bound to ``flat_params``, and the loss's logs."""

    def of_weights(weights: Sequence[Tensor]) -> LossAndLogs:
        return loss(bind(weights_from_list(layout, weights)))

    gradients, logs = output_gradients(of_weights, weight_list(layout.unflatten(flat_params)))
    return layout.flatten(gradients), logs


def output_gradients(
    loss: Callable[[Sequence[Tensor]], LossAndLogs], outputs: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], Logs]:
    """``∂ Σ L / ∂ outputs`` of a loss that is a function of network outputs, and the loss's logs."""

    def total(*given: Tensor) -> LossAndLogs:
        value, logs = loss(given)
        return value.sum(), logs

    gradients, logs = torch.func.grad(total, argnums=tuple(range(len(outputs))), has_aux=True)(
        *outputs
    )
    return gradients, logs
