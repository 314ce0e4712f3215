"""The layers of ``layer_ops`` in plain PyTorch, for every device: the reference for the Triton kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.kernels.layer import BackwardRows, LayerSlice, Pieces, expand_shared, linear


def forward(
    flat_params: Tensor,
    layer: LayerSlice,
    x: Tensor,
    activation: str | None,
    *,
    for_backward: bool,
    stride: int,
    biased: int | None,
) -> tuple[Tensor, Tensor | None]:
    """``layer_ops.forward``."""
    flat_params = flat_params[::stride]
    z = _product(
        expand_shared(x, flat_params), layer.weights(flat_params), layer.biases(flat_params), biased
    )
    if activation is None:
        return z, None
    h, activation_grad = ACTIVATIONS[activation].with_grad(z)
    return h, activation_grad if for_backward else None


def _product(x: Tensor, weights: Tensor, biases: Tensor, biased: int | None) -> Tensor:
    if biased is None:
        return linear(x, (weights, biases))
    z = torch.bmm(x, weights)
    if biased == 0:
        return z
    have = torch.arange(z.shape[1], device=z.device) < biased
    return z + torch.where(have[:, None], biases, 0.0)


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
    for pieces, (x_rows, d_rows, biased_rows) in zip(gradients or (), rows.slices(), strict=False):
        inputs = expand_shared(x[:, x_rows], flat_params)
        pieces.update(layer.pieces(torch.bmm(inputs.mT, d[:, d_rows]), d[:, biased_rows].sum(1)))
    if rows.input_grad_rows == 0:
        return None
    d = d[:, : rows.input_grad_rows]
    # With a single output the product is an outer one: a multiplication, which is fused with that
    # by ``f'``.
    back = layer.weights(flat_params).mT
    dx = d * back if layer.outputs == 1 else torch.bmm(d, back)
    if activation_grad is None:
        return dx
    second = rows.input_grad_rows - rows.primary_rows
    return dx * (
        torch.cat((activation_grad[:, : rows.primary_rows], activation_grad[:, :second]), 1)
        if second > 0
        else activation_grad[:, : rows.input_grad_rows]
    )
