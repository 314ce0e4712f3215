"""The layers of ``layer_ops`` in plain PyTorch, for every device: the reference for the kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.networks.layout import LayerSlice, Pieces
from damper.engine.networks.stacked import linear


class BackwardRows(NamedTuple):
    """What ``backward`` does with the rows of ``d = ∂L/∂z``.

    Attributes:
        primary_rows: number of first rows of d that belong to the first loss; the rest belong to
            the second. Row i of either was computed from row i of x.
        gradient_groups: lengths of the groups into which the rows are split, each with its own
            gradient: all of one length, or one group per loss.
        input_gradient: whether the gradient with respect to the layer's inputs is needed.
    """

    primary_rows: int
    gradient_groups: tuple[int, ...]
    input_gradient: bool = True

    def slices(self) -> list[tuple[slice, slice]]:
        """For each group: its rows of x, and its rows of d."""
        slices, begin = [], 0
        for length in self.gradient_groups:
            x_begin = begin if begin < self.primary_rows else begin - self.primary_rows
            slices.append((slice(x_begin, x_begin + length), slice(begin, begin + length)))
            begin += length
        return slices


class FusedHead(NamedTuple):
    """A last layer with one output that kernels run together with the layer before it."""

    layer: LayerSlice
    h: Tensor  # the head's input
    activation_grad: Tensor | None  # the derivative ``f'`` of the activation that gave h


def forward(
    flat_params: Tensor,
    layer: LayerSlice,
    x: Tensor,
    activation: str | None,
    *,
    for_backward: bool,
    stride: int,
) -> tuple[Tensor, Tensor | None]:
    """``layer_ops.forward``."""
    flat_params = flat_params[::stride]
    weights, biases = layer.weights(flat_params), layer.biases(flat_params)
    z = linear(_expand_shared(x, flat_params), (weights, biases))
    if activation is None:
        return z, None
    h, activation_grad = ACTIVATIONS[activation].with_grad(z)
    return h, activation_grad if for_backward else None


def backward(
    flat_params: Tensor,
    layer: LayerSlice,
    x: Tensor,
    d: Tensor,
    rows: BackwardRows,
    *,
    activation_grad: Tensor | None,
    gradients: list[Pieces] | None,
    stride: int,
) -> Tensor | None:
    """``layer_ops.backward``."""
    flat_params = flat_params[::stride]
    for pieces, (x_rows, d_rows) in zip(gradients or (), rows.slices(), strict=False):
        inputs = _expand_shared(x[:, x_rows], flat_params)
        pieces.update(layer.pieces(torch.bmm(inputs.mT, d[:, d_rows]), d[:, d_rows].sum(1)))
    if not rows.input_gradient:
        return None
    back = layer.weights(flat_params).mT
    # With a single output the product is an outer one: a multiplication, which is fused with that
    # by ``f'``.
    dx = d * back if layer.outputs == 1 else torch.bmm(d, back)
    if activation_grad is None:
        return dx
    # Both losses read ``f'`` of the same rows of x.
    primary, second = rows.primary_rows, d.shape[1] - rows.primary_rows
    first_part = activation_grad[:, :primary]
    if second == 0:
        return dx * first_part
    return dx * torch.cat((first_part, activation_grad[:, :second]), 1)


def _expand_shared(x: Tensor, flat_params: Tensor) -> Tensor:
    """Inputs ``[M/2, ...]``, one per pair of networks, as ``[M, ...]``; others as they are."""
    return x if len(x) == len(flat_params) else x.repeat_interleave(2, 0)
