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

Weights = dict[str, tuple[Tensor, Tensor]]  # by layer: weights [M, in, out] and biases [M, 1, out]
Pieces = dict[int, Tensor]  # flat gradients [M, length] by their start among the n


@dataclass(frozen=True)
class LayerSlice:
    """A layer's position in flat parameters: its sizes, and where weights and biases start.

    Weights are ``[inputs, outputs]``. Several heads of ``outputs_per_head`` outputs each count as
    one layer, with parameters ``head_stride`` numbers apart. ``padding`` counts the unused numbers
    after each head's weights and after its biases.
    """

    inputs: int
    outputs: int
    weight_offset: int
    bias_offset: int
    outputs_per_head: int
    head_stride: int = 0
    padding: tuple[int, int] = (0, 0)

    @property
    def heads(self) -> int:
        """Number of heads in this layer."""
        return self.outputs // self.outputs_per_head

    def weights(self, flat_params: Tensor) -> Tensor:
        """``[M, inputs, outputs]`` from flat parameters ``[M, n]``."""
        parts = [
            flat_params[:, start:end].unflatten(1, (self.inputs, self.outputs_per_head))
            for start, end in self._spans(self.weight_offset, self.inputs)
        ]
        # A single head stays a view; torch.cat would copy it.
        return parts[0] if self.heads == 1 else torch.cat(parts, -1)

    def biases(self, flat_params: Tensor) -> Tensor:
        """``[M, 1, outputs]`` from flat parameters ``[M, n]``."""
        spans = self._spans(self.bias_offset, 1)
        parts = [flat_params[:, start:end] for start, end in spans]
        return (parts[0] if self.heads == 1 else torch.cat(parts, -1)).unsqueeze(1)

    def pieces(self, weights: Tensor, biases: Tensor) -> Pieces:
        """Weights ``[M, inputs, outputs]`` and biases ``[M, outputs]`` as flat pieces."""
        pieces = {}
        by_weights = (self.weight_offset, self.inputs, weights)
        for offset, inputs, values in (by_weights, (self.bias_offset, 1, biases.unsqueeze(1))):
            by_head = values.split(self.outputs_per_head, -1)
            for (start, _), part in zip(self._spans(offset, inputs), by_head, strict=True):
                pieces[start] = part.flatten(1)
        return pieces

    def _spans(self, offset: int, inputs: int) -> list[tuple[int, int]]:
        starts = [offset + head * self.head_stride for head in range(self.heads)]
        return [(start, start + inputs * self.outputs_per_head) for start in starts]


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
                start += -(-length // self.alignment) * self.alignment
        return spans

    @cached_property
    def _paddings(self) -> list[int]:
        """Unused numbers after each weight and bias."""
        return [-length % self.alignment for _, length in self.spans]

    @cached_property
    def size(self) -> int:
        """Numbers per network, including padding."""
        return sum(length for _, length in self.spans) + sum(self._paddings)

    @cached_property
    def layer_slices(self) -> tuple[LayerSlice, ...]:
        """The hidden layers, then all heads as one layer."""
        # Heads have the same inputs and sizes, evenly spaced.
        slices = []
        for i, (_, inputs, outputs) in enumerate(self.layers):
            (weight_offset, _), (bias_offset, _) = self.spans[2 * i : 2 * i + 2]
            padding = (self._paddings[2 * i], self._paddings[2 * i + 1])
            place = (weight_offset, bias_offset)
            slices.append(LayerSlice(inputs, outputs, *place, outputs, padding=padding))
        hidden = sum(name.startswith("trunk.") for name, _, _ in self.layers)
        heads = slices[hidden:]
        head_stride = heads[1].weight_offset - heads[0].weight_offset if len(heads) > 1 else 0
        outputs = len(heads) * heads[0].outputs
        return (*slices[:hidden], replace(heads[0], outputs=outputs, head_stride=head_stride))

    def unflatten(self, flat_params: Tensor) -> Weights:
        """Flat parameters ``[M, n]`` as views: weights ``[M, in, out]``, biases ``[M, 1, out]``."""
        parts = iter([flat_params[:, start : start + length] for start, length in self.spans])
        return {
            name: (next(parts).unflatten(1, (inputs, outputs)), next(parts).unsqueeze(1))
            for name, inputs, outputs in self.layers
        }

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """Flat parameters ``[M, n]`` from weights and biases, in the order of ``weight_list``."""
        # One tensor of zeros for all gaps; each is shorter than the alignment.
        filler = tensors[0].new_zeros(tensors[0].shape[0], self.alignment)
        parts = []
        for tensor, padding in zip(tensors, self._paddings, strict=True):
            parts.append(tensor.flatten(1))
            if padding:
                parts.append(filler[:, :padding])
        return torch.cat(parts, 1)

    def init_params(self, streams: Streams, purpose: str, dtype: torch.dtype) -> Tensor:
        """New flat parameters ``[P, n]``, as in ``nn.Linear`` uniform in ±1/√inputs.

        Each layer has its own stream, so that an extra head does not change the others.
        """
        parts = []
        for name, inputs, outputs in self.layers:
            count = inputs * outputs
            draw = streams.uniform(f"init:{purpose}.{name}", 0, (count + outputs,), dtype)
            parts += (draw / math.sqrt(inputs)).split((count, outputs), 1)
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
    pairs = zip(tensors[::2], tensors[1::2], strict=True)
    return {name: pair for (name, _, _), pair in zip(layout.layers, pairs, strict=True)}
