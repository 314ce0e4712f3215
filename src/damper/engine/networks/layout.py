"""Layout of a network's layers in its flat parameters, ``[M, n]`` for M stacked networks.

With flat parameters, per-agent dots, norms, optimiser steps and Polyak averages are single
operations. Layers are views into them, so running a network copies nothing.
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
from damper.engine.kernels.layer import LayerSlice

Weights = dict[str, tuple[Tensor, Tensor]]  # by layer: weights [M, in, out] and biases [M, 1, out]


@dataclass(frozen=True)
class Layout:
    """A network's linear layers, (name, inputs, outputs), and their positions in flat parameters.

    Every weight, every bias and every network starts at a multiple of ``alignment`` numbers,
    because matrix kernels are much slower on unaligned data. The padding in between is zero and
    stays zero.
    """

    layers: tuple[tuple[str, int, int], ...]
    alignment: int = 1

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Start and length of each weight and bias, in the order of ``weight_list``."""
        spans, start = [], 0
        for _, inputs, outputs in self.layers:
            for length in (inputs * outputs, outputs):
                spans.append((start, length))
                start += self._padded(length)
        return spans

    def _padded(self, length: int) -> int:
        return -(-length // self.alignment) * self.alignment

    def _padding(self, length: int) -> int:
        return self._padded(length) - length

    @cached_property
    def size(self) -> int:
        """Numbers per network, including padding."""
        return sum(self._padded(length) for _, length in self.spans)

    @cached_property
    def layer_slices(self) -> tuple[LayerSlice, ...]:
        """The hidden layers, then all heads as one layer: they have the same inputs and sizes, evenly spaced."""
        slices = [
            LayerSlice(
                inputs,
                outputs,
                start,
                bias,
                outputs,
                padding=(self._padding(inputs * outputs), self._padding(outputs)),
            )
            for (_, inputs, outputs), (start, _), (bias, _) in zip(
                self.layers, self.spans[::2], self.spans[1::2], strict=True
            )
        ]
        hidden = sum(name.startswith("trunk.") for name, _, _ in self.layers)
        heads = slices[hidden:]
        head_stride = heads[1].weight_offset - heads[0].weight_offset if len(heads) > 1 else 0
        return (
            *slices[:hidden],
            replace(heads[0], outputs=len(heads) * heads[0].outputs, head_stride=head_stride),
        )

    def unflatten(self, flat_params: Tensor) -> Weights:
        """Views of flat parameters ``[M, n]`` as weights ``[M, in, out]`` and biases ``[M, 1, out]``."""
        parts = iter([flat_params[:, start : start + length] for start, length in self.spans])
        return {
            name: (next(parts).unflatten(1, (a, b)), next(parts).unsqueeze(1))
            for name, a, b in self.layers
        }

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """Flat parameters ``[M, n]`` from weights and biases, in the order of ``weight_list``."""
        filler = tensors[0].new_zeros(tensors[0].shape[0], self.alignment)
        parts = []
        for tensor, (_, length) in zip(tensors, self.spans, strict=True):
            parts.append(tensor.flatten(1))
            if padding := self._padding(length):
                parts.append(filler[:, :padding])
        return torch.cat(parts, 1)

    def init_params(self, streams: Streams, purpose: str, dtype: torch.dtype) -> Tensor:
        """Flat parameters ``[P, n]``, initialised like ``nn.Linear``: weights and biases uniform in ±1/√inputs.

        Each layer has its own stream, so that an extra head does not change the others.
        """
        parts = []
        for name, inputs, outputs in self.layers:
            draw = streams.uniform(
                f"init:{purpose}.{name}", 0, (inputs * outputs + outputs,), dtype
            )
            parts += (draw / math.sqrt(inputs)).split((inputs * outputs, outputs), 1)
        return self.flatten(parts)


def trunk_layers(inputs: int, hidden: Sequence[int]) -> tuple[tuple[str, int, int], ...]:
    """Hidden layers ``trunk.0``, ``trunk.1``, ..."""
    sizes = (inputs, *hidden)
    return tuple((f"trunk.{i}", a, b) for i, (a, b) in enumerate(pairwise(sizes)))


def weight_list(weights: Weights) -> list[Tensor]:
    """All weights and biases, in the order of the flat parameters."""
    return [tensor for layer in weights.values() for tensor in layer]


def weights_from_list(layout: Layout, tensors: Sequence[Tensor]) -> Weights:
    """The inverse of ``weight_list``."""
    return {
        name: (tensors[2 * i], tensors[2 * i + 1]) for i, (name, _, _) in enumerate(layout.layers)
    }
