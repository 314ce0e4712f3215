"""Where a linear layer is in flat parameters ``[M, n]``, and what all implementations of it share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

MIN_BATCHED_OUTPUTS = 16  # with at least this many outputs, a CPU multiplies all networks at once
Pieces = dict[int, Tensor]  # flat gradients [M, length] by their start among the n


@dataclass(frozen=True)
class LayerSlice:
    """A layer's position in flat parameters: its sizes, and where its weights ``[inputs, outputs]`` and biases start.

    Several heads of ``outputs_per_head`` outputs each count as one layer, with parameters
    ``head_stride`` numbers apart. ``padding`` counts the unused numbers after each head's weights
    and after its biases.
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
        spans = self._spans(self.weight_offset, self.inputs)
        parts = [
            flat_params[:, a:b].unflatten(1, (self.inputs, self.outputs_per_head)) for a, b in spans
        ]
        return parts[0] if self.heads == 1 else torch.cat(parts, -1)

    def biases(self, flat_params: Tensor) -> Tensor:
        """``[M, 1, outputs]`` from flat parameters ``[M, n]``."""
        parts = [flat_params[:, a:b] for a, b in self._spans(self.bias_offset, 1)]
        return (parts[0] if self.heads == 1 else torch.cat(parts, -1)).unsqueeze(1)

    def pieces(self, weights: Tensor, biases: Tensor) -> dict[int, Tensor]:
        """Flat pieces of weights ``[M, inputs, outputs]`` and biases ``[M, outputs]``, by where they start."""
        pieces = {}
        both = (
            (self.weight_offset, self.inputs, weights),
            (self.bias_offset, 1, biases.unsqueeze(1)),
        )
        for start, inputs, values in both:
            for (a, _), part in zip(
                self._spans(start, inputs), values.split(self.outputs_per_head, -1), strict=True
            ):
                pieces[a] = part.flatten(1)
        return pieces

    def _spans(self, start: int, inputs: int) -> list[tuple[int, int]]:
        starts = [start + head * self.head_stride for head in range(self.heads)]
        return [(a, a + inputs * self.outputs_per_head) for a in starts]


@dataclass(frozen=True)
class BackwardRows:
    """What ``layer_ops.backward`` does with the rows of ``d = ∂L/∂z``; all counts start at the first row.

    Attributes:
        primary_rows: number of rows of d that belong to the first loss; the rest belong to the
            second. Row i of either was computed from row i of x.
        gradient_groups: lengths of the groups into which the rows are split, each with its own
            gradient: all of one length, or one group per loss.
        input_grad_rows: number of rows that need the gradient with respect to the layer's inputs; 0
            for none.
        biased_rows: number of rows to which the bias was added.
    """

    primary_rows: int
    gradient_groups: tuple[int, ...]
    input_grad_rows: int
    biased_rows: int

    @classmethod
    def whole(cls, primary_rows: int, gradient_groups: Sequence[int]) -> BackwardRows:
        """All rows had the bias, and all need the gradient with respect to the inputs."""
        return cls(primary_rows, tuple(gradient_groups), sum(gradient_groups), sum(gradient_groups))

    def slices(self) -> list[tuple[slice, slice, slice]]:
        """For each group: its rows of x, its rows of d, and those rows of d that had the bias."""
        slices, begin = [], 0
        for length in self.gradient_groups:
            x_begin, end = (
                begin if begin < self.primary_rows else begin - self.primary_rows,
                begin + length,
            )
            biased = slice(begin, min(end, max(begin, self.biased_rows)))
            slices.append((slice(x_begin, x_begin + length), slice(begin, end), biased))
            begin = end
        return slices


class FusedHead(NamedTuple):
    """What the backward pass needs of a last layer with one output that kernels run together with the layer before."""

    layer: LayerSlice
    h: Tensor  # the head's input
    activation_grad: Tensor | None  # the derivative ``f'`` of the activation that gave h


def linear(x: Tensor, layer: tuple[Tensor, Tensor]) -> Tensor:
    """``x W + b`` for stacked inputs ``[M, B, in]``."""
    weight, bias = layer
    if x.is_cpu and weight.shape[-1] < MIN_BATCHED_OUTPUTS:
        # On a CPU a batched product with few columns is several times slower than separate
        # products.
        agents = zip(
            x.unbind(), weight.mT.contiguous().unbind(), bias.squeeze(1).unbind(), strict=True
        )
        return torch.stack([F.linear(*agent) for agent in agents])
    if x.is_cpu:
        return torch.baddbmm(bias, x, weight)
    # On a GPU baddbmm first copies the bias into the output; an addition is fused with the
    # activation.
    return torch.bmm(x, weight) + bias


def expand_shared(x: Tensor, flat_params: Tensor) -> Tensor:
    """Repeat inputs ``[M/2, ...]``, one per pair of networks, to ``[M, ...]``; return ``[M, ...]`` as is."""
    return x if len(x) == len(flat_params) else x.repeat_interleave(2, 0)
