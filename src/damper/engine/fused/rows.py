"""What a layer's backward pass is told beside its tensors."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from damper.engine.networks.layout import LayerSlice


class BackwardRows(NamedTuple):
    """What ``backward`` does with the rows of ``d = ∂L/∂z``.

    Attributes:
        primary_rows: number of first rows of d that belong to the first loss; the rest belong to
            the second. Row i of either was computed from row i of x.
        gradient_groups: lengths of the groups into which the rows are split, each with its own
            gradient: all of one length, or one group per loss.
        input_gradient: whether the gradient with respect to the layer's inputs is needed.
    """

    primary_rows: int
    gradient_groups: tuple[int, ...]
    input_gradient: bool = True

    def slices(self) -> list[tuple[slice, slice]]:
        """For each group: its rows of x, and its rows of d."""
        slices, begin = [], 0
        for length in self.gradient_groups:
            x_begin = begin if begin < self.primary_rows else begin - self.primary_rows
            slices.append((slice(x_begin, x_begin + length), slice(begin, begin + length)))
            begin += length
        return slices


class FusedHead(NamedTuple):
    """A last layer with one output that kernels run together with the layer before it."""

    layer: LayerSlice
    h: Tensor  # the head's input
    activation_grad: Tensor | None  # the derivative ``f'`` of the activation that gave h
