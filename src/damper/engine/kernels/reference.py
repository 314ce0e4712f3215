"""The layers of ``dense`` in plain PyTorch, for every device: what the other ways of running them must equal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.kernels.layer import Dense, Pieces, expand_shared, group_slices, linear, row_count


def forward(
    flat_params: Tensor, layer: Dense, x: Tensor, activation: str | None, keep: bool, stride: int, biased: bool | int
) -> tuple[Tensor, Tensor | None]:
    """``dense.forward``."""
    flat_params = flat_params[::stride]
    z = _product(expand_shared(x, flat_params), layer.weights(flat_params), layer.biases(flat_params), biased)
    if activation is None:
        return z, None
    h, activation_grad = ACTIVATIONS[activation].with_grad(z)
    return h, activation_grad if keep else None


def _product(x: Tensor, weights: Tensor, biases: Tensor, biased: bool | int) -> Tensor:
    if biased is True:
        return linear(x, (weights, biases))
    z = torch.bmm(x, weights)
    if not biased:
        return z
    have = torch.arange(z.shape[1], device=z.device) < biased
    return z + torch.where(have[:, None], biases, 0.0)


def backward(
    flat_params: Tensor,
    layer: Dense,
    x: Tensor,
    d: Tensor,
    primary_rows: int,
    group_sizes: Sequence[int],
    activation_grad: Tensor | None,
    gradients: list[Pieces] | None,
    input_grad_rows: bool | int,
    stride: int,
    biased: bool | int,
) -> Tensor | None:
    """``dense.backward``."""
    flat_params, input_grad_rows, biased = flat_params[::stride], row_count(input_grad_rows, d), row_count(biased, d)
    for pieces, (x_rows, d_rows, biased_rows) in zip(
        gradients or (), group_slices(group_sizes, primary_rows, biased), strict=False
    ):
        inputs = expand_shared(x[:, x_rows], flat_params)
        pieces.update(layer.pieces(torch.bmm(inputs.mT, d[:, d_rows]), d[:, biased_rows].sum(1)))
    if not input_grad_rows:
        return None
    d = d[:, :input_grad_rows]
    # A single output needs no product: that is an outer one, which joins the multiplication by ``f'``.
    back = layer.weights(flat_params).mT
    dx = d * back if layer.outputs == 1 else torch.bmm(d, back)
    if activation_grad is None:
        return dx
    second = input_grad_rows - primary_rows
    return dx * (
        torch.cat((activation_grad[:, :primary_rows], activation_grad[:, :second]), 1)
        if second > 0
        else activation_grad[:, :input_grad_rows]
    )
