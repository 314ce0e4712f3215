"""A kept forward pass gives what autograd gives, for as many losses as go back through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.fused.tape import Tape
from tests.engine import layers

M, R, TOLERANCE = 4, 12, 1e-12
HEADS = {"actor": ("mu", "log_std", "prediction"), "critic": ("q",)}
OUTPUTS = {"actor": 2, "critic": 1}


@dataclass
class Case:
    """M networks and their inputs."""

    kind: str
    activation: str = "silu"
    hidden: tuple[int, ...] = (18, 7)
    shared: bool = False
    stride: int = 1

    def __post_init__(self) -> None:
        self.layout = layers.layout(5, self.hidden, HEADS[self.kind], OUTPUTS[self.kind])
        self.rows = layers.rows(self.layout, M)
        self.networks = M // self.stride
        self.x = layers.draw("x", M // 2 if self.shared else self.networks, R, 5)

    def tape(self, for_backward: bool = True) -> Tape:
        return Tape(self.layout, self.rows, self.activation, self.x, for_backward, self.stride)

    def reference(self, rows: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        used = (self.rows if rows is None else rows)[:: self.stride]
        return layers.network(self.layout, used, self.activation, self.x if x is None else x)

    def gradient(self, cotangent: Tensor) -> Tensor:
        rows = self.rows.clone().requires_grad_()
        output = self.reference(rows)[:, : cotangent.shape[1]]
        (found,) = torch.autograd.grad((output * cotangent).sum(), rows)
        return found[:: self.stride]

    def cotangents(self, sizes: Sequence[int]) -> list[Tensor]:
        outputs = self.layout.layer_slices[-1].outputs
        return [
            layers.draw(f"loss {i}", self.networks, size, outputs) for i, size in enumerate(sizes)
        ]


CASES = [
    *(Case("actor", activation) for activation in ACTIVATIONS),
    *(Case("actor", hidden=hidden) for hidden in ((6,), (6, 5, 4))),
    Case("critic"),
    Case("critic", shared=True),
    Case("critic", stride=2),
]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


def test_it_runs_the_networks(case: Case) -> None:
    expected = case.reference()
    assert layers.apart(case.tape().output, expected) <= TOLERANCE
    forward_only = case.tape(for_backward=False)
    assert torch.equal(forward_only.output, case.tape().output)
    assert forward_only.activation_grads == [None] * (len(case.hidden) + 2), (
        "nothing is kept to go back"
    )


# Both on all rows, on fewer, and the second on more than the first.
@pytest.mark.parametrize("sizes", [(R,), (4,), (R, R), (R, 4), (4, 8)], ids=str)
def test_gradients_of_one_or_two_losses(case: Case, sizes: tuple[int, ...]) -> None:
    cotangents = case.cotangents(sizes)
    found = case.tape().gradients(cotangents, rows_per_group=4)
    assert len(found) == len(sizes)
    for ours, cotangent in zip(found, cotangents, strict=True):
        assert ours.shape == (case.networks, case.layout.size)
        assert layers.furthest(case.layout, ours, case.gradient(cotangent)) <= TOLERANCE
        assert (layers.gaps(case.layout, ours) == 0).all()


def test_two_losses_do_not_touch_each_other(case: Case) -> None:
    first, second = case.cotangents((R, 8))
    spoiled = case.tape().gradients(
        [first, torch.full_like(second, float("nan"))], rows_per_group=4
    )
    assert torch.equal(spoiled[0], case.tape().gradients([first, second], rows_per_group=4)[0])
    assert spoiled[1].isnan().any()


def test_input_slopes(case: Case) -> None:
    x = case.x.repeat_interleave(case.networks // len(case.x), 0).requires_grad_()
    (expected,) = torch.autograd.grad(case.reference(x=x).sum(), x)
    assert layers.apart(case.tape().input_gradients(), expected) <= TOLERANCE


@pytest.mark.parametrize("case", [case for case in CASES if case.stride == 1], ids=str)
def test_again_is_the_same_tape(case: Case) -> None:
    tape, cotangents = case.tape(), case.cotangents((R, 8))
    again = Tape.from_saved(
        case.layout, case.rows, [kept.clone() for kept in tape.saved_activations]
    )
    assert torch.equal(again.output, tape.output)
    assert torch.equal(again.input_gradients(), tape.input_gradients())
    for ours, theirs in zip(
        again.gradients(cotangents, 4), tape.gradients(cotangents, 4), strict=True
    ):
        assert torch.equal(ours, theirs)
