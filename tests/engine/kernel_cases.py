"""The GPU's kernels beside the same sums in float64, on a GPU or in Triton's interpreter.

``TRITON_INTERPRET=1 python -m tests.engine.kernel_cases`` compares on a CPU and prints relative
differences by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from damper.engine.fused import layer_ops
from damper.engine.fused.tape import Tape
from damper.engine.networks.agent_networks import ALIGNMENT
from damper.engine.networks.layout import Layout
from tests.engine import layers

INPUTS, SPOILED = 5, 2
Compared = tuple[str, float]
plain_blank = layer_ops.alloc_grads


@dataclass(frozen=True)
class Case:
    """Which networks, and how they are read."""

    heads: tuple[str, ...] = ("q",)
    outputs: int = 1
    activation: str = "silu"
    shared: bool = False
    stride: int = 1
    depth: int = 2


CASES = {
    "heads": Case(("mu", "log_std", "prediction"), 3),
    "relu": Case(activation="relu"),
    "tanh": Case(
        activation="tanh"
    ),  # forwards by PyTorch, backwards by kernels that are given its gradient
    "shared": Case(shared=True),
    "every second": Case(stride=2),
    "one hidden layer": Case(depth=1),
}


def spoiled_alloc_grads(rows: Tensor, groups: int, stride: int = 1) -> Any:
    """In place of ``layer_ops.alloc_grads``: what the kernels leave unwritten is NaN."""
    found = plain_blank(rows, groups, stride)
    return found.fill_(float("nan")) if isinstance(found, Tensor) else found


class Sizes:
    """M networks with inputs; ``run`` compares a case's results in float32 and float64."""

    def __init__(self, device: str, hidden: tuple[int, ...], batch: int, networks: int) -> None:
        self.device, self.hidden, self.batch, self.networks = device, hidden, batch, networks

    def run(self, case: Case) -> Iterator[Compared]:
        tape, exact = self.tape(case, torch.float32), self.tape(case, torch.float64)
        yield "output", layers.apart(tape.output, exact.output)
        yield (
            "output alone",
            layers.apart(self.tape(case, torch.float32, for_backward=False).output, exact.output),
        )
        if case.activation == "relu":
            # Rounding may move a sum across the kink, so the way back starts from what the kernels
            # saw.
            yield "activation_grads", 0.0 if _is_kinked(tape) else math.inf
            exact = Tape.from_saved(
                self._layout(case),
                exact.flat_params,
                [saved.double() for saved in tape.saved_activations],
            )
        yield (
            "input activation_grads",
            layers.apart(tape.input_gradients(), exact.input_gradients()),
        )
        for sizes in ((self.batch,), (self.batch, self.batch // 2)):
            yield from self._gradients(case, tape, exact, sizes)
        yield from self._groups(case, tape, exact)
        yield "others of a NaN", 0.0 if self._stays(case, tape) else math.inf

    def tape(
        self, case: Case, dtype: torch.dtype, spoil: bool = False, for_backward: bool = True
    ) -> Tape:
        layout = self._layout(case)
        rows = layers.rows(layout, self.networks, torch.float32)
        rows[SPOILED] *= float("nan") if spoil else 1.0
        # Inputs that lie among others, as those cut out of a batch do.
        wide = layers.draw(
            "x", self.networks // (2 if case.shared else case.stride), self.batch, INPUTS + 4
        )
        x = wide.to(self.device, torch.float32)[..., 2 : 2 + INPUTS]
        return Tape(
            layout,
            rows.to(self.device, dtype),
            case.activation,
            x.to(dtype),
            for_backward,
            case.stride,
        )

    def _layout(self, case: Case) -> Layout:
        return layers.layout(
            INPUTS, self.hidden[-case.depth :], case.heads, case.outputs, ALIGNMENT
        )

    def _draw(self, name: str, like: Tensor, rows: int) -> Tensor:
        return layers.draw(name, len(like), rows, like.shape[-1], dtype=torch.float32).to(
            self.device
        )

    def _gradients(
        self, case: Case, tape: Tape, exact: Tape, sizes: tuple[int, ...]
    ) -> Iterator[Compared]:
        layout = self._layout(case)
        given = [self._draw(f"loss {i}", tape.output, size) for i, size in enumerate(sizes)]
        found = tape.gradients(given, self.batch // 4)
        expected = exact.gradients([c.double() for c in given], self.batch // 4)
        yield from _compare(layout, f"of rows {sizes}", found, expected)

    def _groups(self, case: Case, tape: Tape, exact: Tape) -> Iterator[Compared]:
        """A gradient for every group of rows, as on a GPU: two of one loss, one of another."""
        layout, length = self._layout(case), self.batch // 2
        d, gradients = self._draw("groups", tape.output, 3 * length), []
        for own in (tape, exact):
            found = layer_ops.alloc_grads(own.flat_params, 3, own.stride)
            own._back(d.to(own.flat_params.dtype), 2 * length, [length] * 3, found)
            gradients.append(layer_ops.collect_grads(found, layout.size))
        yield from _compare(layout, "of a group", *gradients)

    def _stays(self, case: Case, clean: Tape) -> bool:
        """Whether a network that is not finite changes no bit of the others."""
        d = self._draw("d", clean.output, self.batch)
        spoiled, member = self.tape(case, torch.float32, spoil=True), SPOILED // case.stride
        results = [
            [tape.output, tape.input_gradients(), *tape.gradients([d], self.batch)]
            for tape in (spoiled, clean)
        ]
        others = [j for j in range(len(d)) if j != member]
        same = all(
            torch.equal(ours[others], theirs[others]) for ours, theirs in zip(*results, strict=True)
        )
        return same and bool(spoiled.output[member].isnan().all())


def _is_kinked(tape: Tape) -> bool:
    pairs = zip(tape.activation_grads[1:-1], tape.inputs[1:], strict=True)
    return all(
        activation_grad is not None and torch.equal(activation_grad, (h > 0).to(h.dtype))
        for activation_grad, h in pairs
    )


def _compare(
    layout: Layout, what: str, found: Iterable[Tensor], expected: Iterable[Tensor]
) -> Iterator[Compared]:
    for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        yield f"gradient {i} {what}", layers.furthest(layout, ours, theirs)
        yield f"gaps {i} {what}", float(layers.gaps(layout, ours).abs().max())


def differences(sizes: Sizes, names: Iterable[str] = CASES) -> dict[str, float]:
    """The named cases' differences, by what was compared."""
    return {f"{name}: {what}": value for name in names for what, value in sizes.run(CASES[name])}


def interpreted(rows: Tensor, activation: str | None = None) -> ModuleType | None:
    """In the place of ``layer_ops._kernels``: the choice it makes for a GPU, for a CPU."""
    from damper.engine.fused import triton_layers

    return (
        triton_layers
        if rows.dtype == torch.float32 and activation in triton_layers.ACTIVATION_CODES
        else None
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    layer_ops._kernels, layer_ops.alloc_grads = interpreted, spoiled_alloc_grads
    # No size is a multiple of a tile's.
    print(json.dumps(differences(Sizes("cpu", (70, 36), 40, 4))))
