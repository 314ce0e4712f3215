"""Where a linear layer lies in flat parameters ``[M, n]``, and what all ways of running it share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

NARROW_OUTPUTS = 16  # outputs
Pieces = dict[int, Tensor]  # flat gradients [M, length] by where they start among the n


@dataclass(frozen=True)
class Dense:
    """Where a layer lies in flat parameters: weights ``[inputs, outputs]`` from ``weight`` on, biases from ``bias`` on.

    Several heads of ``group`` outputs each count as one layer; each lies ``head_stride`` numbers after the one before.
    ``padding`` are the unused numbers behind the weights and behind the biases of each.
    """

    inputs: int
    outputs: int
    weight: int
    bias: int
    group: int
    head_stride: int = 0
    padding: tuple[int, int] = (0, 0)

    @property
    def heads(self) -> int:
        """How many layers lie side by side."""
        return self.outputs // self.group

    def weights(self, flat_params: Tensor) -> Tensor:
        """``[M, inputs, outputs]`` from flat parameters ``[M, n]``."""
        spans = self._spans(self.weight, self.inputs)
        parts = [flat_params[:, a:b].unflatten(1, (self.inputs, self.group)) for a, b in spans]
        return parts[0] if self.heads == 1 else torch.cat(parts, -1)

    def biases(self, flat_params: Tensor) -> Tensor:
        """``[M, 1, outputs]`` from flat parameters ``[M, n]``."""
        parts = [flat_params[:, a:b] for a, b in self._spans(self.bias, 1)]
        return (parts[0] if self.heads == 1 else torch.cat(parts, -1)).unsqueeze(1)

    def pieces(self, weights: Tensor, biases: Tensor) -> dict[int, Tensor]:
        """Weights ``[M, inputs, outputs]`` and biases ``[M, outputs]`` as flat pieces by where they start."""
        pieces = {}
        for start, inputs, values in ((self.weight, self.inputs, weights), (self.bias, 1, biases.unsqueeze(1))):
            for (a, _), part in zip(self._spans(start, inputs), values.split(self.group, -1), strict=True):
                pieces[a] = part.flatten(1)
        return pieces

    def _spans(self, start: int, inputs: int) -> list[tuple[int, int]]:
        starts = [start + head * self.head_stride for head in range(self.heads)]
        return [(a, a + inputs * self.group) for a in starts]


def linear(x: Tensor, layer: tuple[Tensor, Tensor]) -> Tensor:
    """``x W + b`` for stacked inputs ``[M, B, in]``."""
    weight, bias = layer
    if x.is_cpu and weight.shape[-1] < NARROW_OUTPUTS:
        # A CPU's batched product with few columns is several times slower than one product after the other.
        agents = zip(x.unbind(), weight.mT.contiguous().unbind(), bias.squeeze(1).unbind(), strict=True)
        return torch.stack([F.linear(*agent) for agent in agents])
    if x.is_cpu:
        return torch.baddbmm(bias, x, weight)
    # On a GPU baddbmm first copies the bias over the output; an addition joins the activation's kernel.
    return torch.bmm(x, weight) + bias


def row_count(rows: bool | int, x: Tensor) -> int:
    """All rows of x, none of them, or so many of the first."""
    return rows * x.shape[1] if isinstance(rows, bool) else rows


def group_slices(group_sizes: Sequence[int], primary_rows: int, biased: int) -> list[tuple[slice, slice, slice]]:
    """Of each group in ``backward``: its rows of x, its rows of d, and those of them that had a bias."""
    slices, begin = [], 0
    for length in group_sizes:
        x_begin, end = begin if begin < primary_rows else begin - primary_rows, begin + length
        slices.append((slice(x_begin, x_begin + length), slice(begin, end), slice(begin, min(end, max(begin, biased)))))
        begin = end
    return slices


def expand_shared(x: Tensor, flat_params: Tensor) -> Tensor:
    """Inputs for every network, where two share theirs."""
    return x if len(x) == len(flat_params) else x.repeat_interleave(2, 0)
