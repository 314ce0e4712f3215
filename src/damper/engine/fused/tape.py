"""A forward pass with saved activations, through which losses are differentiated by hand."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.engine.fused import layer_ops
from damper.engine.fused.rows import BackwardRows, FusedHead
from damper.engine.networks.layout import Layout

MAX_NETWORKS_IN_GROUPS = 16  # more networks fill a GPU without groups
MAX_GROUPS = 8


class Tape:
    """A forward pass of M stacked networks ``f(x W + b)``, the last layer without f.

    Activations are saved; autograd does not see any of it.

    Args:
        layout: their layers.
        flat_params: their parameters ``[M, n]``.
        activation: f.
        x: inputs ``[M, R, inputs]``, or ``[M/2, R, inputs]`` where two networks share theirs.
        for_backward: whether to save what a backward pass needs.
        stride: 2 runs only the first, third, ... network.
    """

    def __init__(
        self,
        layout: Layout,
        flat_params: Tensor,
        activation: str,
        x: Tensor,
        for_backward: bool = True,
        stride: int = 1,
    ) -> None:
        self.layers, self.flat_params, self.stride = layout.layer_slices, flat_params, stride
        self.inputs: list[Tensor] = []
        self.activation_grads: list[Tensor | None] = [None]
        # A kernel that computes the head with the layer before saves a launch and a store.
        self.kernels = layer_ops.fused_head(flat_params, self.layers, activation)
        options: dict[str, Any] = {"for_backward": for_backward, "stride": stride}
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers[:-2] if self.kernels is not None else self.layers):
            self.inputs.append(x)
            f = None if i == last else activation
            x, activation_grad = layer_ops.forward(flat_params, layer, x, f, **options)
            self.activation_grads.append(activation_grad)
        if self.kernels is not None:
            self.inputs.append(x)
            layer, head = self.layers[-2:]
            h, activation_grad, x = self.kernels.forward(
                flat_params, layer, x, activation, head=head, **options
            )
            self.inputs.append(h)
            self.activation_grads += [activation_grad, None]
        self.output = x

    @property
    def saved_activations(self) -> list[Tensor]:
        """The tensors for ``from_saved``: all layers' inputs and derivatives, and the output."""
        derivatives = [f_prime for f_prime in self.activation_grads if f_prime is not None]
        return [*self.inputs, *derivatives, self.output]

    @classmethod
    def from_saved(
        cls, layout: Layout, flat_params: Tensor, saved_activations: Sequence[Tensor]
    ) -> Tape:
        """Rebuild a tape, in another function than the one that ran it, from what it saved."""
        tape, count = cls.__new__(cls), len(layout.layer_slices)
        tape.layers, tape.flat_params, tape.stride = layout.layer_slices, flat_params, 1
        tape.kernels = None  # only SAC's actors are saved, which have two heads
        *between, tape.output = saved_activations
        tape.inputs, tape.activation_grads = between[:count], [None, *between[count:], None]
        return tape

    def gradients(self, cotangents: Sequence[Tensor], rows_per_group: int) -> list[Tensor]:
        """Gradients ``[M, n]`` of one or two losses, given ``∂L/∂output`` of each.

        Losses read the first rows of the output. The row count of every loss is a multiple of
        ``rows_per_group``.
        """
        sizes = [c.shape[1] for c in cotangents]
        # Losses share the backward pass: their rows follow each other in one product per layer.
        grouped = in_groups(self.flat_params, sum(sizes), rows_per_group)
        groups = [rows_per_group] * (sum(sizes) // rows_per_group) if grouped else sizes
        grads = layer_ops.alloc_grads(self.flat_params, len(groups), self.stride)
        self._back(torch.cat(tuple(cotangents), 1), sizes[0], groups, grads)
        count = sizes[0] // groups[0] if grouped else 1
        by_group = layer_ops.collect_grads(grads, self.flat_params.shape[1])
        shares = (by_group[:count], by_group[count:])
        return [functools.reduce(torch.add, share) for share in shares if share]

    def input_gradients(self) -> Tensor:
        """``[M, R, inputs]``: row i is ``∂ Σ output_i / ∂x_i``; rows are independent."""
        d = torch.ones_like(self.output)
        return self._back(d, d.shape[1], (d.shape[1],), None)

    def _back(self, d: Tensor, primary: int, groups: Sequence[int], grads: Any) -> Tensor:
        backward: Callable[..., Tensor | None] = layer_ops.backward
        more: dict[str, Any] = {}
        begin = len(self.layers) - 1
        if self.kernels is not None:
            begin -= 1
            head = FusedHead(self.layers[-1], self.inputs[-1], self.activation_grads[-2])
            backward, more = self.kernels.backward, {"fused_head": head}
        for i in range(begin, -1, -1):
            # The gradient with respect to x is needed only if the parameters' gradients are not.
            rows = BackwardRows(primary, tuple(groups), input_gradient=i > 0 or grads is None)
            back = backward(
                *(self.flat_params, self.layers[i], self.inputs[i], d, rows),
                activation_grad=self.activation_grads[i],
                gradients=grads,
                stride=self.stride,
                **more,
            )
            d = d if back is None else back
            backward, more = layer_ops.backward, {}
        return d


def in_groups(flat_params: Tensor, total: int, rows_per_group: int) -> bool:
    """Whether to sum groups of rows in parallel: few networks would leave most of a GPU idle."""
    few = len(flat_params) < MAX_NETWORKS_IN_GROUPS and total <= MAX_GROUPS * rows_per_group
    return flat_params.is_cuda and few
