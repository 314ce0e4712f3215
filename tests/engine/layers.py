"""Stacked networks in their plainest form, for autograd: the reference for the tapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.data.random_streams import Streams
from damper.engine.networks.layout import Layout, trunk_layers, weight_list


def layout(
    inputs: int, hidden: Sequence[int], heads: Sequence[str], outputs: int, alignment: int = 8
) -> Layout:
    """Hidden layers and heads of one size, with gaps behind most of them."""
    return Layout(
        (*trunk_layers(inputs, hidden), *((head, hidden[-1], outputs) for head in heads)), alignment
    )


def rows(made: Layout, networks: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Parameters ``[M, n]``, large enough for activations to bend."""
    return 2.0 * made.init_params(Streams(range(networks)), "layers", dtype)


def draw(name: str, networks: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers ``[M, *shape]``."""
    return Streams(range(networks)).normal(name, 0, shape, dtype)


def network(made: Layout, given: Tensor, activation: str, x: Tensor) -> Tensor:
    """Outputs ``[M, R, ·]`` of all heads; x ``[M/2, R, ·]`` goes to two networks each."""
    if len(x) != len(given):
        x = x.repeat_interleave(2, 0)
    heads = []
    for name, (weight, bias) in made.unflatten(given).items():
        z = x @ weight + bias
        if name.startswith("trunk."):
            x = ACTIVATIONS[activation].function(z)
        else:
            heads.append(z)
    return torch.cat(heads, -1)


def gaps(made: Layout, given: Tensor) -> Tensor:
    """What no layer uses of rows ``[..., n]``."""
    unused = torch.ones(made.size, dtype=torch.bool)
    for start, length in made.spans:
        unused[start : start + length] = False
    return given[..., unused.to(given.device)]


def apart(ours: Tensor, theirs: Tensor) -> float:
    """``‖ours − theirs‖ / ‖theirs‖``; infinite for different shapes or NaN."""
    if ours.shape != theirs.shape:
        return math.inf
    distance = float((ours.double() - theirs.double()).norm() / theirs.double().norm())
    return distance if math.isfinite(distance) else math.inf


def furthest(made: Layout, ours: Tensor, theirs: Tensor) -> float:
    """The largest ``apart`` of any weight or bias of rows ``[M, n]``."""
    pairs = zip(weight_list(made.unflatten(ours)), weight_list(made.unflatten(theirs)), strict=True)
    return max(apart(a, b) for a, b in pairs)
