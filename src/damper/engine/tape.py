"""A forward pass that is kept, so that any number of losses can go back through it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from damper.engine import dense
from damper.engine.nets import Layout

MANY = 16  # networks


class Tape:
    """M stacked networks ``f(x W + b)``, the last layer without f, run on inputs and kept.

    Values only: nothing here is seen by autograd.
    """

    def __init__(self, layout: Layout, rows: Tensor, activation: str, x: Tensor, keep: bool = True) -> None:
        """Run the networks.

        Args:
            layout: their layers.
            rows: their parameters ``[M, n]``.
            activation: f.
            x: inputs ``[M, R, inputs]``, or ``[M/2, R, inputs]`` where two networks share theirs.
            keep: whether what a way back needs is kept.
        """
        self.layers, self.rows = layout.dense, rows
        self.inputs: list[Tensor] = []
        self.slopes: list[Tensor | None] = [None]
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            self.inputs.append(x)
            x, slope = dense.forward(rows, layer, x, None if i == last else activation, keep)
            self.slopes.append(slope)
        self.output = x

    def gradients(self, cotangents: Sequence[Tensor], span: int) -> list[Tensor]:
        """Rows ``[M, n]`` for each of one or two losses' ``∂L/∂output``, given for the output's first rows.

        Every loss has a multiple of ``span`` rows.
        """
        sizes = [c.shape[1] for c in cotangents]
        # Few networks leave a GPU idle: summing rows in groups and then the groups is done sooner.
        apart = self.rows.is_cuda and len(self.rows) < MANY
        lengths = [span] * (sum(sizes) // span) if apart else sizes
        found = self.rows.new_zeros(len(lengths), *self.rows.shape)
        self._back(torch.cat(tuple(cotangents), 1), sizes[0], lengths, found)
        count = sizes[0] // lengths[0]
        return [found[:count].sum(0), found[count:].sum(0)][: len(sizes)] if len(lengths) > len(sizes) else list(found)

    def input_slopes(self) -> Tensor:
        """``∂ Σ output / ∂x``, ``[M, R, inputs]``: every row's own, since rows do not meet."""
        d = torch.ones_like(self.output)
        return self._back(d, d.shape[1], (d.shape[1],), None)

    def _back(self, d: Tensor, first: int, lengths: Sequence[int], found: Tensor | None) -> Tensor:
        for i in reversed(range(len(self.layers))):
            back = dense.backward(
                self.rows,
                self.layers[i],
                self.inputs[i],
                d,
                first=first,
                lengths=lengths,
                slope=self.slopes[i],
                gradients=found,
                wanted=i > 0 or found is None,
            )
            d = d if back is None else back
        return d
