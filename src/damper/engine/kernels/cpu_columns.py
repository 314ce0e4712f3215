"""The layers of ``dense`` on a CPU, where a batch's rows are better kept as a matrix's columns.

Every ``[M, R, F]`` that is made here is a view of ``[M, F, R]``: the R numbers of one feature lie side by side. A batch
is a multiple of a processor's vectors more often than a layer is (300 units are 18¾ of them), and a product with few
lines of many columns is several times faster than one with many lines of few.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.kernels.layer import NARROW, Dense, Pieces, expand_shared, group_slices, row_count

FEW = 8  # outputs


def forward(
    rows: Tensor, layer: Dense, x: Tensor, activation: str | None, keep: bool, stride: int, biased: bool | int
) -> tuple[Tensor, Tensor | None]:
    """``dense.forward``."""
    rows = rows[::stride]
    z, biases = _product(layer.weights(rows).mT, expand_shared(x.mT, rows)), layer.biases(rows).mT
    if biased is True:
        z = z + biases
    elif biased:
        z = z + torch.where(torch.arange(z.shape[2], device=z.device) < biased, biases, 0.0)
    if activation is None:
        return z.mT, None
    h, slope = ACTIVATIONS[activation].with_grad(z)
    return h.mT, slope.mT if keep else None


def backward(
    rows: Tensor,
    layer: Dense,
    x: Tensor,
    d: Tensor,
    first: int,
    group_sizes: Sequence[int],
    slope: Tensor | None,
    gradients: list[Pieces] | None,
    input_grad_rows: bool | int,
    stride: int,
    biased: bool | int,
) -> Tensor | None:
    """``dense.backward``."""
    rows, input_grad_rows, biased = rows[::stride], row_count(input_grad_rows, d), row_count(biased, d)
    x, d = expand_shared(x.mT, rows), d.mT
    for pieces, (seen, part, with_bias) in zip(gradients or (), group_slices(group_sizes, first, biased), strict=False):
        pieces.update(layer.pieces(_by_weights(x[..., seen], d[..., part]), d[..., with_bias].sum(2)))
    if not input_grad_rows:
        return None
    dx = _by_inputs(layer.weights(rows), d[..., :input_grad_rows])
    if slope is None:
        return dx.mT
    slope = slope.mT
    if input_grad_rows <= first:
        return (dx * slope[..., :input_grad_rows]).mT
    # Each loss by itself: joined, the slopes would be written and read once more.
    parts = dx[..., :first] * slope[..., :first], dx[..., first:] * slope[..., : input_grad_rows - first]
    return torch.cat(parts, 2).mT


def _product(weights: Tensor, x: Tensor) -> Tensor:
    if weights.shape[1] > 1:
        return torch.bmm(weights, x)
    # The compiler would make a loop of its own of a batched product with a single line, and that is slower.
    return torch.stack([torch.mm(*network) for network in zip(weights.unbind(), x.unbind(), strict=True)])


def _by_weights(x: Tensor, d: Tensor) -> Tensor:
    """``x dᵀ``, found as ``(d xᵀ)ᵀ`` where its lines would be short; a single column is a sum, like the biases'."""
    if d.shape[1] == 1:
        return (x * d).sum(2, keepdim=True)
    return torch.bmm(d, x.mT).mT if d.shape[1] < NARROW else torch.bmm(x, d.mT)


def _by_inputs(weights: Tensor, d: Tensor) -> Tensor:
    """``W d``; with few outputs a sum of outer products, which joins the multiplication by the slopes."""
    outputs = d.shape[1]
    if outputs > FEW:
        return torch.bmm(weights, d)
    dx = weights[..., :1] * d[:, :1]
    for k in range(1, outputs):
        dx = dx + weights[..., k : k + 1] * d[:, k : k + 1]
    return dx
