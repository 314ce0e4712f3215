"""The action gradient written out layer by layer is the critic's derivative."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from damper.engine.data.random_streams import Streams
from damper.engine.networks.layout import Layout, trunk_layers, weight_list, weights_from_list
from damper.engine.networks.stacked import StackedCritic
from damper.interface import Batch
from damper.losses.pave import nested_action_gradients, pave

OBS, B = 3, 6
WEIGHTS = {"lambda_1": 0.7, "lambda_2": 0.3, "lambda_3": 0.2, "sigma": 0.5, "delta": 1.0}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
HIDDEN = [(7,), (7, 5), (7, 5, 6)]


class ByValue:
    """A critic of which nothing but its values is known."""

    def __init__(self, critic: StackedCritic) -> None:
        self.critic, self.first = critic, critic.first

    def __call__(self, obs: Tensor, action: Tensor) -> Tensor:
        return self.critic(obs, action)


class Case:
    """Critics of P agents with a batch and noise for PAVE."""

    def __init__(
        self, activation: str, hidden: tuple[int, ...], P: int, A: int, dtype: torch.dtype
    ) -> None:
        streams = Streams(range(P))
        self.activation, self.layout = (
            activation,
            Layout((*trunk_layers(OBS + A, hidden), ("q", hidden[-1], 1))),
        )
        twins = [self.layout.init_params(streams, f"critic.{j}", dtype) for j in (0, 1)]
        self.rows = 2.0 * torch.stack(twins, 1).flatten(0, 1)

        def draw(name: str, width: int) -> Tensor:
            return streams.normal(name, 0, (B, width), dtype)

        obs, action, next_obs = draw("obs", OBS), draw("action", A).tanh(), draw("next", OBS)
        self.batch = Batch(obs, action, obs[..., 0], next_obs, obs[..., 0])
        self.noise = {"pave_state": draw("state", OBS), "pave_direction": draw("direction", A)}

    def critic(self, tensors: list[Tensor]) -> StackedCritic:
        return StackedCritic(weights_from_list(self.layout, tensors), self.activation)

    def evaluate(
        self, function: Callable[..., tuple[list[Tensor], Tensor]], *first: object
    ) -> list[Tensor]:
        observations = (
            self.batch.obs,
            self.batch.obs + self.noise["pave_state"],
            self.batch.next_obs,
        )
        gradients, bend = function(
            *first, observations, self.batch.action, self.noise["pave_direction"]
        )
        return [*gradients, bend]

    def loss_and_gradients(self, nested: bool) -> list[Tensor]:
        tensors = [
            tensor.clone().requires_grad_()
            for tensor in weight_list(self.layout.unflatten(self.rows))
        ]
        critic = self.critic(tensors)
        loss = pave(ByValue(critic) if nested else critic, None, self.batch, self.noise, **WEIGHTS)
        return [loss.detach(), *torch.autograd.grad(loss.sum(), tensors, materialize_grads=True)]


def check_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert (a - b).norm() <= tolerance * b.norm()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("A", [1, 4])
@pytest.mark.parametrize("P", [1, 3])
@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
@pytest.mark.parametrize("activation", ["silu", "tanh"])
def test_it_is_the_nested_derivative(
    activation: str, hidden: tuple[int, ...], P: int, A: int, dtype: torch.dtype
) -> None:
    case = Case(activation, hidden, P, A, dtype)
    critic = case.critic(weight_list(case.layout.unflatten(case.rows)))
    theirs = case.evaluate(nested_action_gradients, critic)
    assert all(value.abs().min() > 0 for value in theirs)
    check_close(case.evaluate(critic.action_gradients), theirs, TOLERANCE[dtype])
    ours, theirs = (case.loss_and_gradients(nested) for nested in (False, True))
    assert all(value.norm() > 0 for value in theirs[:-1]), (
        "only the value's own bias has no part in it"
    )
    check_close(ours, theirs, TOLERANCE[dtype])


@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
def test_relu_has_slopes_and_no_curvature(hidden: tuple[int, ...]) -> None:
    case = Case("relu", hidden, 2, 2, torch.float64)
    critic = case.critic(weight_list(case.layout.unflatten(case.rows)))
    ours = case.evaluate(critic.action_gradients)
    check_close(ours, case.evaluate(nested_action_gradients, critic), 1e-10)
    assert (ours[-1] == 0).all() and (ours[0] != 0).any()
    check_close(*(case.loss_and_gradients(nested) for nested in (False, True)), 1e-10)


def test_an_agent_that_is_not_finite_stays_alone() -> None:
    case = Case("silu", (7, 5), 3, 2, torch.float32)
    before = case.loss_and_gradients(nested=False)
    case.batch.next_obs[1, 2] = torch.nan
    loss, *gradients = case.loss_and_gradients(nested=False)
    assert loss.isnan().tolist() == [False, True, False]
    for ours, theirs in zip(
        (loss.repeat_interleave(2), *gradients),
        (before[0].repeat_interleave(2), *before[1:]),
        strict=True,
    ):
        assert torch.equal(ours[[0, 1, 4, 5]], theirs[[0, 1, 4, 5]])


def test_it_takes_an_eighth_less_of_the_products() -> None:
    # Per product of the inner layer: values three times, tangents once, slopes three times, and
    # twice that to go back; nested differentiation goes through the curvature's slopes once more.
    case = Case("silu", (256, 256), 1, 1, torch.float32)
    counted = []
    for nested in (False, True):
        with FlopCounterMode(display=False) as counter:
            case.loss_and_gradients(nested)
        counted.append(counter.get_total_flops())
    inner = 2 * 2 * B * 256 * 256
    assert counted[0] / inner == pytest.approx(21, rel=0.05)
    assert counted[1] / inner == pytest.approx(24, rel=0.05)
