"""Gradients of losses per agent with respect to stacked networks, eagerly or inside ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from damper.engine.nets import Layout, Weights, leaves, rebuild
from damper.engine.objectives import Seen

Network = TypeVar("Network")


def differentiate(
    losses: Sequence[Callable[[Network], Seen]], bind: Callable[[Weights], Network], layout: Layout, rows: Tensor
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Flat gradients ``[M, n]`` of each loss (``[P]``, summed) with respect to the rows, and all that was seen.

    Each loss takes the network that ``bind`` makes of the rows' layers, and all share its forward pass.
    """
    if torch.compiler.is_compiling():
        return _differentiate_traced(losses, bind, layout, rows)
    tensors = [tensor.detach().requires_grad_() for tensor in leaves(layout.split(rows))]
    with torch.enable_grad():
        network = bind(rebuild(layout, tensors))
        values, seen = zip(*(loss(network) for loss in losses), strict=True)
        gradients = [
            layout.join(
                torch.autograd.grad(value.sum(), tensors, retain_graph=i + 1 < len(values), materialize_grads=True)
            )
            for i, value in enumerate(values)
        ]
    return gradients, {name: value.detach() for part in seen for name, value in part.items()}


def _differentiate_traced(
    losses: Sequence[Callable[[Network], Seen]], bind: Callable[[Weights], Network], layout: Layout, rows: Tensor
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The same through ``torch.func``, which ``torch.compile`` traces into one graph; ``autograd.grad`` breaks it.

    Each loss runs its own forward pass: a shared one would have to send zeros backwards through the other's graph.
    """
    tensors = tuple(leaves(layout.split(rows)))
    gradients: list[Tensor] = []
    found: dict[str, Tensor] = {}
    for loss in losses:

        def total(*own: Tensor, loss: Callable[[Network], Seen] = loss) -> tuple[Tensor, dict[str, Tensor]]:
            value, seen = loss(bind(rebuild(layout, own)))
            return value.sum(), seen

        gradient, seen = torch.func.grad(total, argnums=tuple(range(len(tensors))), has_aux=True)(*tensors)
        gradients.append(layout.join(gradient))
        found |= seen
    return gradients, found
