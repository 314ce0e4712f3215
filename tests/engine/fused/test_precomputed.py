"""Precomputed outputs give each loss the values and gradients of the networks themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from damper.engine.fused.gradients import output_gradients
from damper.engine.fused.precomputed import (
    CriticFromValues,
    InputCollector,
    LinearizedCritic,
    PolicyFromOutputs,
    PrecomputedOutputs,
)
from damper.engine.fused.tape import Tape
from damper.engine.networks.stacked import StackedActor, StackedCritic
from damper.errors import DamperError
from tests.engine import layers

P, B, OBS, ACT, TOLERANCE = 3, 6, 4, 2, 1e-12
HEADS = {
    "td3": ("mu",),
    "sac": ("mu", "log_std"),
    "td3+asap": ("mu", "prediction"),
    "sac+asap": ("mu", "log_std", "prediction"),
}


def close(ours: Tensor, theirs: Tensor) -> bool:
    return layers.apart(ours, theirs) <= TOLERANCE


# --- asking and answering -------------------------------------------------------------------------


def asking(inputs: list[tuple[Tensor, ...]], width: int = 2) -> InputCollector:
    return InputCollector(inputs, lambda *key: (*key[0].shape[:-1], width))


def are(inputs: list[tuple[Tensor, ...]], *tensors: Tensor) -> bool:
    return len(inputs) == len(tensors) and all(
        key[0] is x for key, x in zip(inputs, tensors, strict=True)
    )


def test_different_inputs_are_noted_once_each_by_identity() -> None:
    obs, other = layers.draw("obs", P, B, OBS), layers.draw("other", P, 2 * B, OBS)
    twin = obs.clone()
    inputs: list[tuple[Tensor, ...]] = []
    ask = asking(inputs)
    answers = [ask(x) for x in (obs, other, obs, twin, other)]
    assert are(inputs, obs, other, twin) and ask.order == [0, 1, 2]
    assert all((answer == 0).all() for answer in answers)
    assert [answer.shape[1] for answer in answers] == [B, 2 * B, B, B, 2 * B]


def test_losses_that_share_a_list_each_keep_their_own_order() -> None:
    s, after, before = (layers.draw(name, P, B, OBS) for name in ("s", "after", "before"))
    inputs: list[tuple[Tensor, ...]] = []
    first, second = asking(inputs), asking(inputs)
    for x in (s, after):
        first(x)
    for x in (before, after, s, before):
        second(x)
    assert are(inputs, s, after, before)
    assert (first.order, second.order) == ([0, 1], [2, 1, 0])
    outputs = [layers.draw(f"output {i}", P, B, 2) for i in range(3)]
    answer = PrecomputedOutputs([outputs[i] for i in second.order])
    assert [answer(x) is outputs[i] for x, i in ((before, 2), (after, 1), (s, 0), (before, 2))] == [
        True
    ] * 4


def test_an_input_is_all_its_tensors() -> None:
    obs, a, b = (
        layers.draw("obs", P, B, OBS),
        layers.draw("a", P, B, ACT),
        layers.draw("b", P, B, ACT),
    )
    inputs: list[tuple[Tensor, ...]] = []
    ask = asking(inputs)
    for pair in ((obs, a), (obs, b), (obs, a)):
        ask(*pair)
    assert len(inputs) == 2 and ask.order == [0, 1]


def made_inside(read: Callable[[Tensor], Tensor], obs: Tensor) -> tuple[Tensor, Tensor]:
    """A loss that makes its own observations, anew at every call; the last is made twice."""
    near, far = obs + 0.1, 2.0 * obs
    return (read(obs) * read(near)).sum((1, 2)), (read(far) - read(2.0 * obs)).square().sum(
        (1, 2)
    ) + read(near).sum()


def test_observations_made_inside_a_loss_are_answered_in_their_order() -> None:
    obs, weights = layers.draw("obs", P, B, OBS), layers.draw("weights", 1, OBS, 2)

    def network(x: Tensor) -> Tensor:
        return torch.tanh(x @ weights)

    inputs: list[tuple[Tensor, ...]] = []
    ask = asking(inputs)
    made_inside(ask, obs)
    assert len(inputs) == 4, (
        "equal numbers made twice are two inputs: only the same tensor is the same"
    )
    outputs = network(torch.cat([x for (x,) in inputs], 1)).split(B, 1)
    answered = made_inside(PrecomputedOutputs([outputs[i] for i in ask.order]), obs)
    for ours, theirs in zip(answered, made_inside(network, obs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)


def test_an_answer_that_was_not_asked_for_is_refused() -> None:
    obs = layers.draw("obs", P, B, OBS)
    answer = PrecomputedOutputs([obs])
    answer(obs)
    with pytest.raises(IndexError):
        answer(obs + 1.0)


def test_slopes_are_autograd_s() -> None:
    answers = [layers.draw(name, P, B, 2).requires_grad_() for name in ("a", "b")]

    def loss(given: tuple[Tensor, ...]) -> tuple[Tensor, dict[str, Tensor]]:
        value = (given[0].sin() * given[1].square()).sum((1, 2))
        return value, {"value": value}

    found, seen = output_gradients(loss, [answer.detach() for answer in answers])
    value = loss(tuple(answers))[0]
    for ours, theirs in zip(found, torch.autograd.grad(value.sum(), answers), strict=True):
        assert close(ours, theirs)
    assert close(seen["value"], value.detach()) and not seen["value"].requires_grad


# --- critics --------------------------------------------------------------------------------------

CRITIC = layers.layout(OBS + ACT, (9, 7), ("q",), 1)


def true_critic() -> StackedCritic:
    return StackedCritic(CRITIC.unflatten(layers.rows(CRITIC, 2 * P)), "silu")


def read_both(obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    own = action.detach().unsqueeze(1).expand(-1, 2, -1, -1).clone().requires_grad_()
    with torch.enable_grad():
        values = true_critic()(obs, own)
        return values.detach(), torch.autograd.grad(values.sum(), own)[0]


def read_first(obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    values, gradient = read_both(obs, action)
    return values[:, 0], gradient[:, 0]


def critic_loss(critic: StackedCritic | CriticFromValues, obs: Tensor, action: Tensor) -> Tensor:
    """Both critics, then the first alone, then both elsewhere: values must keep this order."""
    lower = critic(obs, action).amin(1) - critic.first(obs, 0.5 * action).square()
    return (lower + critic(obs, action.square()).sin().sum(1)).mean(1)


def test_linear_critics_are_exact_to_first_order() -> None:
    obs, raw = layers.draw("obs", P, B, OBS), layers.draw("raw", P, B, ACT).requires_grad_()
    expected = critic_loss(true_critic(), obs, raw.tanh())
    both, first = LinearizedCritic(read_both), LinearizedCritic(read_first)
    with torch.no_grad():
        value = critic_loss(CriticFromValues(both, first), obs, raw.tanh())
    assert close(value, expected.detach())
    again = critic_loss(CriticFromValues(both.linearized(), first.linearized()), obs, raw.tanh())
    assert close(again.detach(), expected.detach())
    ours, theirs = (torch.autograd.grad(loss.sum(), raw)[0] for loss in (again, expected))
    assert close(ours, theirs)


def test_linear_critics_can_be_repeated_any_number_of_times() -> None:
    obs, action = layers.draw("obs", P, B, OBS), layers.draw("action", P, B, ACT)
    linear = LinearizedCritic(read_first)
    value = linear(obs, action)
    assert torch.equal(linear.linearized()(obs, action), value) and torch.equal(
        linear.linearized()(obs, action), value
    )
    answer = linear.linearized()
    answer(obs, action)
    with pytest.raises(StopIteration):
        answer(obs, action)


# --- policies -------------------------------------------------------------------------------------


def pair(backbone: str) -> tuple[PolicyFromOutputs, StackedActor]:
    """A policy that reads and one that runs, both with a Polyak average that is another network."""
    layout = layers.layout(OBS, (9, 7), HEADS[backbone], ACT)
    rows = layers.rows(layout, P)
    # Both of log_std's bounds are met.
    if "log_std" in HEADS[backbone]:
        layout.unflatten(rows)["log_std"][1].copy_(torch.tensor([2.0, -20.0]))
    average = -0.5 * rows
    read, behind = (
        lambda obs, own=own: Tape(layout, own, "silu", obs).output for own in (rows, average)
    )
    stacked = StackedActor(
        layout.unflatten(rows), "silu", StackedActor(layout.unflatten(average), "silu")
    )
    return PolicyFromOutputs(HEADS[backbone], read, behind), stacked


@pytest.mark.parametrize("backbone", HEADS)
def test_a_policy_that_reads_equals_one_that_runs(backbone: str) -> None:
    ours, theirs = pair(backbone)
    obs = layers.draw("obs", P, B, OBS)
    assert ours.stochastic == theirs.stochastic == backbone.startswith("sac")
    assert close(ours(obs), theirs(obs))
    if ours.stochastic:
        for a, b in zip(ours.distribution(obs), theirs.distribution(obs), strict=True):
            assert close(a, b)
        log_std = ours.distribution(obs)[1]
        assert (log_std == 2.0).any() and (log_std == -20.0).any() and log_std.unique().numel() > 2
    if backbone.endswith("asap"):
        assert close(ours.prediction(obs), theirs.prediction(obs))
        assert close(ours.averaged_prediction(obs), theirs.averaged_prediction(obs))
        assert not close(ours.averaged_prediction(obs), ours.prediction(obs))


def test_a_head_that_is_not_there_is_named() -> None:
    policy = PolicyFromOutputs(("mu",), lambda obs: obs, lambda obs: obs)
    obs = torch.zeros(1, 4, 2)
    assert policy(obs).shape == obs.shape
    for ask, words in (
        (policy.distribution, "needs a stochastic actor"),
        (policy.prediction, "prediction=True"),
    ):
        with pytest.raises(DamperError, match=words):
            ask(obs)
