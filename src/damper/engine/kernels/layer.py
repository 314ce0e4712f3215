"""Where a linear layer lies in flat parameters ``[M, n]``, and what all ways of running it share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

BATCHED_OUTPUTS = 16  # from so many on, a CPU multiplies all networks at once
Pieces = dict[int, Tensor]  # flat gradients [M, length] by where they start among the n


@dataclass(frozen=True)
class LayerSlice:
    """Where a layer lies in flat parameters: its sizes, and where its weights ``[inputs, outputs]`` and biases start.

    Several heads of ``outputs_per_head`` outputs each count as one layer; each lies ``head_stride`` numbers after the
    one before. ``padding`` are the unused numbers behind the weights and behind the biases of each.
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
        """How many heads count as this one layer."""
        return self.outputs // self.outputs_per_head

    def weights(self, flat_params: Tensor) -> Tensor:
        """``[M, inputs, outputs]`` from flat parameters ``[M, n]``."""
        spans = self._spans(self.weight_offset, self.inputs)
        parts = [flat_params[:, a:b].unflatten(1, (self.inputs, self.outputs_per_head)) for a, b in spans]
        return parts[0] if self.heads == 1 else torch.cat(parts, -1)

    def biases(self, flat_params: Tensor) -> Tensor:
        """``[M, 1, outputs]`` from flat parameters ``[M, n]``."""
        parts = [flat_params[:, a:b] for a, b in self._spans(self.bias_offset, 1)]
        return (parts[0] if self.heads == 1 else torch.cat(parts, -1)).unsqueeze(1)

    def pieces(self, weights: Tensor, biases: Tensor) -> dict[int, Tensor]:
        """Weights ``[M, inputs, outputs]`` and biases ``[M, outputs]`` as flat pieces by where they start."""
        pieces = {}
        both = (self.weight_offset, self.inputs, weights), (self.bias_offset, 1, biases.unsqueeze(1))
        for start, inputs, values in both:
            for (a, _), part in zip(self._spans(start, inputs), values.split(self.outputs_per_head, -1), strict=True):
                pieces[a] = part.flatten(1)
        return pieces

    def _spans(self, start: int, inputs: int) -> list[tuple[int, int]]:
        starts = [start + head * self.head_stride for head in range(self.heads)]
        return [(a, a + inputs * self.outputs_per_head) for a in starts]


@dataclass(frozen=True)
class BackwardRows:
    """What ``layer_ops.backward`` does with the rows of ``d = ∂L/∂z``; every number counts rows from the first on.

    Attributes:
        primary_rows: number of rows of d that belong to the first loss; the rest belong to the second. Row i of either
            was computed from row i of x.
        gradient_groups: lengths of the groups into which all rows fall, each with a gradient of its own: all of one
            length, or one per loss.
        input_grad_rows: those whose gradient with respect to the layer's inputs is wanted; 0 for none.
        biased_rows: those that had the bias added.
    """

    primary_rows: int
    gradient_groups: tuple[int, ...]
    input_grad_rows: int
    biased_rows: int

    @classmethod
    def whole(cls, primary_rows: int, gradient_groups: Sequence[int]) -> BackwardRows:
        """Where all rows had the bias, and the gradient with respect to inputs is wanted of all."""
        return cls(primary_rows, tuple(gradient_groups), sum(gradient_groups), sum(gradient_groups))

    def slices(self) -> list[tuple[slice, slice, slice]]:
        """Of each group: its rows of x, its rows of d, and those of them that had the bias."""
        slices, begin = [], 0
        for length in self.gradient_groups:
            x_begin, end = begin if begin < self.primary_rows else begin - self.primary_rows, begin + length
            biased = slice(begin, min(end, max(begin, self.biased_rows)))
            slices.append((slice(x_begin, x_begin + length), slice(begin, end), biased))
            begin = end
        return slices


class FusedHead(NamedTuple):
    """What the backward pass needs of a one-output last layer that kernels run together with the layer before it."""

    layer: LayerSlice
    h: Tensor  # what went into it
    activation_grad: Tensor | None  # the gradient ``f'`` of the activation that made h


def linear(x: Tensor, layer: tuple[Tensor, Tensor]) -> Tensor:
    """``x W + b`` for stacked inputs ``[M, B, in]``."""
    weight, bias = layer
    if x.is_cpu and weight.shape[-1] < BATCHED_OUTPUTS:
        # A CPU's batched product with few columns is several times slower than one product after the other.
        agents = zip(x.unbind(), weight.mT.contiguous().unbind(), bias.squeeze(1).unbind(), strict=True)
        return torch.stack([F.linear(*agent) for agent in agents])
    if x.is_cpu:
        return torch.baddbmm(bias, x, weight)
    # On a GPU baddbmm first copies the bias over the output; an addition joins the activation's kernel.
    return torch.bmm(x, weight) + bias


def expand_shared(x: Tensor, flat_params: Tensor) -> Tensor:
    """``[M, ...]`` inputs, one for every network, from ``[M/2, ...]`` where every two share theirs."""
    return x if len(x) == len(flat_params) else x.repeat_interleave(2, 0)
