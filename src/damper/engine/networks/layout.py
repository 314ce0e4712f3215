"""Where a network's layers lie in one flat row of parameters, ``[P, n]`` for P stacked networks.

Flat rows make per-agent dots, norms, optimiser steps and Polyak averages single operations; layers are views into the
rows, so nothing is copied to run them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from damper.engine.data.random_streams import Streams
from damper.engine.kernels.layer import Dense

Weights = dict[str, tuple[Tensor, Tensor]]  # by layer: weights [M, in, out] and biases [M, 1, out]


@dataclass(frozen=True)
class Layout:
    """Which linear layers a network has, (name, inputs, outputs), and where they lie in a flat row.

    Every weight and bias starts at a multiple of ``alignment`` numbers, and so does the next row: matrix kernels are
    much slower on data that is not. What lies between is zero and stays zero.
    """

    layers: tuple[tuple[str, int, int], ...]
    alignment: int = 1

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Start and length of each weight and bias, in the order of ``leaves``."""
        spans, start = [], 0
        for _, inputs, outputs in self.layers:
            for length in (inputs * outputs, outputs):
                spans.append((start, length))
                start += self._padded(length)
        return spans

    def _padded(self, length: int) -> int:
        return -(-length // self.alignment) * self.alignment

    def _gap(self, length: int) -> int:
        return self._padded(length) - length

    @cached_property
    def size(self) -> int:
        """Numbers in one row."""
        return sum(self._padded(length) for _, length in self.spans)

    @cached_property
    def dense(self) -> tuple[Dense, ...]:
        """The hidden layers, then all heads as one: they share inputs and sizes, and lie evenly spaced."""
        places = [
            Dense(inputs, outputs, start, bias, outputs, gaps=(self._gap(inputs * outputs), self._gap(outputs)))
            for (_, inputs, outputs), (start, _), (bias, _) in zip(
                self.layers, self.spans[::2], self.spans[1::2], strict=True
            )
        ]
        hidden = sum(name.startswith("trunk.") for name, _, _ in self.layers)
        heads = places[hidden:]
        jump = heads[1].weight - heads[0].weight if len(heads) > 1 else 0
        return (*places[:hidden], replace(heads[0], outputs=len(heads) * heads[0].outputs, jump=jump))

    def split(self, flat: Tensor) -> Weights:
        """Views of rows ``[M, n]`` as weights ``[M, in, out]`` and biases ``[M, 1, out]``."""
        parts = iter([flat[:, start : start + length] for start, length in self.spans])
        return {name: (next(parts).unflatten(1, (a, b)), next(parts).unsqueeze(1)) for name, a, b in self.layers}

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Rows ``[M, n]`` from weights and biases, in the order of ``leaves``."""
        filler = tensors[0].new_zeros(tensors[0].shape[0], self.alignment)
        parts = []
        for tensor, (_, length) in zip(tensors, self.spans, strict=True):
            parts.append(tensor.flatten(1))
            if gap := self._gap(length):
                parts.append(filler[:, :gap])
        return torch.cat(parts, 1)

    def initial(self, streams: Streams, purpose: str, dtype: torch.dtype) -> Tensor:
        """Rows ``[P, n]`` drawn as PyTorch's ``nn.Linear``: weights and biases uniform in ±1/√inputs.

        Each layer has its own stream, so that an extra head does not change the others.
        """
        parts = []
        for name, inputs, outputs in self.layers:
            draw = streams.uniform(f"init:{purpose}.{name}", 0, (inputs * outputs + outputs,), dtype)
            parts += (draw / math.sqrt(inputs)).split((inputs * outputs, outputs), 1)
        return self.join(parts)


def trunk_layers(inputs: int, hidden: Sequence[int]) -> tuple[tuple[str, int, int], ...]:
    """Hidden layers ``trunk.0``, ``trunk.1``, ..."""
    sizes = (inputs, *hidden)
    return tuple((f"trunk.{i}", a, b) for i, (a, b) in enumerate(pairwise(sizes)))


def leaves(weights: Weights) -> list[Tensor]:
    """All tensors of a split, in the flat row's order."""
    return [tensor for layer in weights.values() for tensor in layer]


def rebuild(layout: Layout, tensors: Sequence[Tensor]) -> Weights:
    """The inverse of ``leaves``."""
    return {name: (tensors[2 * i], tensors[2 * i + 1]) for i, (name, _, _) in enumerate(layout.layers)}
