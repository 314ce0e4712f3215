"""The layers of ``dense`` in plain PyTorch, for every device: what the other ways of running them must equal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from damper.engine.dense import ACTIVATIONS, Dense, Pieces, each, how_many, linear, shares


def forward(
    rows: Tensor, layer: Dense, x: Tensor, activation: str | None, keep: bool, every: int, biased: bool | int
) -> tuple[Tensor, Tensor | None]:
    """``dense.forward``."""
    rows = rows[::every]
    z = _product(each(x, rows), layer.weights(rows), layer.biases(rows), biased)
    if activation is None:
        return z, None
    h, slope = ACTIVATIONS[activation](z)
    return h, slope if keep else None


def _product(x: Tensor, weights: Tensor, biases: Tensor, biased: bool | int) -> Tensor:
    if biased is True:
        return linear(x, (weights, biases))
    z = torch.bmm(x, weights)
    if not biased:
        return z
    have = torch.arange(z.shape[1], device=z.device) < biased
    return z + torch.where(have[:, None], biases, 0.0)


def backward(
    rows: Tensor,
    layer: Dense,
    x: Tensor,
    d: Tensor,
    first: int,
    lengths: Sequence[int],
    slope: Tensor | None,
    gradients: list[Pieces] | None,
    wanted: bool | int,
    every: int,
    biased: bool | int,
) -> Tensor | None:
    """``dense.backward``."""
    rows, wanted, biased = rows[::every], how_many(wanted, d), how_many(biased, d)
    for pieces, (seen, part, with_bias) in zip(gradients or (), shares(lengths, first, biased), strict=False):
        inputs = each(x[:, seen], rows)
        pieces.update(layer.pieces(torch.bmm(inputs.mT, d[:, part]), d[:, with_bias].sum(1)))
    if not wanted:
        return None
    d = d[:, :wanted]
    # A single output needs no product: that is an outer one, which joins the multiplication by the slopes.
    back = layer.weights(rows).mT
    dx = d * back if layer.outputs == 1 else torch.bmm(d, back)
    if slope is None:
        return dx
    second = wanted - first
    return dx * (torch.cat((slope[:, :first], slope[:, :second]), 1) if second > 0 else slope[:, :wanted])
