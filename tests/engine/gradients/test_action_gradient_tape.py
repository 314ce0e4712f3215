"""A loss of action gradients has the parameter gradients that autograd finds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from damper.engine.gradients import action_gradient_tape
from damper.engine.gradients.action_gradient_tape import ActionGradientTape
from damper.engine.networks.action_gradients import action_gradients
from tests.engine import layers

OBS, B, TOLERANCE = 3, 4, 1e-10
HIDDEN = [(7,), (18, 5), (7, 20, 6)]


@dataclass
class Case:
    """Critics with inputs, and a loss's derivatives by their action gradients."""

    activation: str = "silu"
    hidden: tuple[int, ...] = (18, 7)
    networks: int = 4
    A: int = 2
    observations: int = 3
    shared: bool = True
    more: int = 0

    def __post_init__(self) -> None:
        self.layout = layers.layout(OBS + self.A, self.hidden, ("q",), 1)
        self.rows = layers.rows(self.layout, self.networks)
        inputs, R = self.networks // (2 if self.shared else 1), self.observations * B + self.more
        self.x, self.v = (
            layers.draw("x", inputs, R, OBS + self.A),
            layers.draw("v", inputs, B, self.A),
        )
        self.g_bar = layers.draw("gradient", self.networks, R, self.A)
        self.c_bar = layers.draw("curvature", self.networks, B)

    def tape(self) -> ActionGradientTape:
        return ActionGradientTape(self.layout, self.rows, self.activation, self.x, self.v)

    def reference(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gradient, curvature, and the slopes of ``Σ ḡ · gradient + Σ c̄ curvature`` by the rows."""
        rows = self.rows.clone().requires_grad_()
        each = self.networks // len(self.x)
        x, v = (part.repeat_interleave(each, 0) for part in (self.x, self.v))
        gradient, curvature = action_gradients(
            list(self.layout.unflatten(rows).values()), self.activation, x, v
        )
        total = (gradient * self.g_bar).sum() + (curvature * self.c_bar).sum()
        return gradient.detach(), curvature.detach(), torch.autograd.grad(total, rows)[0]

    def check(self) -> None:
        tape, (gradient, curvature, expected) = self.tape(), self.reference()
        assert layers.apart(tape.gradient, gradient) <= TOLERANCE
        assert (tape.curvature - curvature).norm() <= TOLERANCE * curvature.norm()
        found = tape.gradients(self.g_bar, self.c_bar)
        assert found.shape == self.rows.shape
        for ours, theirs in zip(
            self.layout.unflatten(found).values(),
            self.layout.unflatten(expected).values(),
            strict=True,
        ):
            for a, b in zip(ours, theirs, strict=True):
                assert (a - b).norm() <= TOLERANCE * b.norm()
        assert (layers.gaps(self.layout, found) == 0).all()


@pytest.mark.parametrize("networks", [2, 6])
@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
@pytest.mark.parametrize("activation", ["silu", "tanh", "relu"])
def test_it_is_autograd_s(activation: str, hidden: tuple[int, ...], networks: int) -> None:
    Case(activation, hidden, networks).check()


@pytest.mark.parametrize(
    "case", [Case(A=1), Case(A=5), Case(shared=False), Case(observations=1)], ids=str
)
def test_other_shapes(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
def test_rows_may_be_summed_in_groups(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action_gradient_tape, "in_groups", lambda *given: True)
    Case(hidden=hidden).check()
    Case(hidden=hidden, more=2).check()  # no whole number of groups: then in one piece


@pytest.mark.parametrize("spoiled", ["rows", "x", "v", "g_bar", "c_bar"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_with_its_agent(spoiled: str, value: float) -> None:
    case = Case(networks=6)
    clean = case.tape().gradients(case.g_bar, case.c_bar)
    tensor = getattr(case, spoiled)
    tensor[2 if len(tensor) == 6 else 1].fill_(value)
    found = case.tape().gradients(case.g_bar, case.c_bar)
    others = [0, 1, 4, 5]
    assert torch.equal(found[others], clean[others])
    assert not found[2].isfinite().all()
