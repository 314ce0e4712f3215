"""Stacked networks equal PyTorch's own modules, agent by agent."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from damper.activations import ACTIVATIONS
from damper.engine.data.random_streams import Streams
from damper.engine.networks import stacked as nets
from damper.engine.networks.agent_networks import NetworkSizes, layouts
from damper.engine.networks.layout import Layout, trunk_layers, weight_list, weights_from_list
from damper.engine.networks.stacked import StackedActor, StackedCritic
from damper.errors import DamperError
from damper.methods import METHODS

P, B, OBS, ACT, HIDDEN = 3, 7, 5, 2, (8, 6)
ACTOR = Layout(
    (*trunk_layers(OBS, HIDDEN), ("mu", 6, ACT), ("log_std", 6, ACT), ("prediction", 6, ACT))
)
CRITIC = Layout((*trunk_layers(OBS + ACT, HIDDEN), ("q", 6, 1)))


def rows(layout: Layout, count: int) -> Tensor:
    return layout.init_params(Streams(range(count)), "test", torch.float64)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def module(layout: Layout, row: Tensor, names: list[str], activation: str) -> nn.Sequential:
    """The named layers of one row as ``nn.Linear``, an activation behind each but the last."""
    made: list[nn.Module] = []
    for name, (weight, bias) in layout.unflatten(row[None]).items():
        if name in names:
            linear = nn.Linear(weight.shape[1], weight.shape[2], dtype=torch.float64)
            linear.load_state_dict({"weight": weight[0].T, "bias": bias[0, 0]})
            made += [linear, ACTIVATIONS[activation].module()]
    return nn.Sequential(*made[:-1])


def test_split_gives_views_and_flatten_takes_them_back() -> None:
    flat = rows(ACTOR, P)
    split = ACTOR.unflatten(flat)
    assert [name for name, _, _ in ACTOR.layers] == list(split)
    assert sum(tensor[0].numel() for tensor in weight_list(split)) == ACTOR.size == flat.shape[1]
    assert torch.equal(ACTOR.flatten(weight_list(split)), flat)
    rebuilt = weights_from_list(ACTOR, weight_list(split))
    assert all(rebuilt[name][i] is split[name][i] for name in split for i in (0, 1))
    split["mu"][0].zero_()
    assert (ACTOR.unflatten(flat)["mu"][0] == 0).all(), "layers share the row's memory"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_actor(activation: str) -> None:
    flat, obs = rows(ACTOR, P), draw(0, P, B, OBS)
    actor = StackedActor(ACTOR.unflatten(flat), activation)
    mean, log_std = actor.distribution(obs)
    for j in range(P):
        trunk = ["trunk.0", "trunk.1"]
        heads = [
            module(ACTOR, flat[j], [*trunk, head], activation)(obs[j])
            for head in ("mu", "log_std", "prediction")
        ]
        torch.testing.assert_close(actor(obs)[j], heads[0].tanh())
        torch.testing.assert_close(mean[j], heads[0])
        torch.testing.assert_close(log_std[j], heads[1])
        torch.testing.assert_close(actor.prediction(obs)[j], heads[2])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_critic(activation: str) -> None:
    flat, obs, action = rows(CRITIC, 2 * P), draw(0, P, B, OBS), draw(1, P, B, ACT)
    critic = StackedCritic(CRITIC.unflatten(flat), activation)
    own = draw(2, P, 2, B, ACT)
    names = [name for name, _, _ in CRITIC.layers]
    for j in range(P):
        for twin in (0, 1):
            reference = module(CRITIC, flat[2 * j + twin], names, activation)
            expected = reference(torch.cat((obs[j], action[j]), -1))[:, 0]
            torch.testing.assert_close(critic(obs, action)[j, twin], expected)
            shifted = reference(torch.cat((obs[j], own[j, twin]), -1))[:, 0]
            torch.testing.assert_close(critic(obs, own)[j, twin], shifted)
            if twin == 0:
                torch.testing.assert_close(critic.first(obs, action)[j], expected)


def test_log_std_is_clamped_as_in_sb3() -> None:
    flat = rows(ACTOR, P)
    ACTOR.unflatten(flat)["log_std"][1].copy_(torch.tensor([100.0, -100.0]))
    log_std = StackedActor(ACTOR.unflatten(flat), "silu").distribution(draw(0, P, B, OBS))[1]
    assert (log_std[..., 0] == 2).all() and (log_std[..., 1] == -20).all()


def test_one_forward_pass_serves_repeated_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = nets.linear
    monkeypatch.setattr(nets, "linear", lambda x, layer: calls.append(1) or original(x, layer))
    actor, obs = StackedActor(ACTOR.unflatten(rows(ACTOR, P)), "silu"), draw(0, P, B, OBS)
    assert actor(obs) is actor(obs)
    assert len(calls) == 3, "two hidden layers and the head"
    actor.distribution(obs)
    assert len(calls) == 5, "two heads on the same features"
    other = obs.clone()
    assert not torch.equal(actor(other + 1), actor(obs)) and len(calls) == 8


def test_the_averaged_prediction_has_no_gradient_and_is_the_average_s() -> None:
    obs = draw(0, P, B, OBS)
    flat, other = rows(ACTOR, P).requires_grad_(), (rows(ACTOR, P) + 0.1).requires_grad_()
    average = StackedActor(ACTOR.unflatten(other), "silu")
    averaged = StackedActor(ACTOR.unflatten(flat), "silu", average).averaged_prediction(obs)
    assert not averaged.requires_grad
    torch.testing.assert_close(averaged, average.prediction(obs).detach())


def test_missing_parts_are_named() -> None:
    deterministic = Layout((*trunk_layers(OBS, HIDDEN), ("mu", 6, ACT)))
    actor = StackedActor(deterministic.unflatten(rows(deterministic, P)), "silu")
    with pytest.raises(DamperError, match="backbone='sac'"):
        actor.distribution(draw(0, P, B, OBS))
    with pytest.raises(DamperError, match="prediction=True"):
        actor.averaged_prediction(draw(0, P, B, OBS))


# --- initialisation -------------------------------------------------------------------------------


def test_initial_layers_are_drawn_as_nn_linear() -> None:
    layout = Layout(trunk_layers(100, (200, 50)))
    split = layout.unflatten(layout.init_params(Streams([0, 1]), "actor", torch.float32))
    for name, inputs, outputs in layout.layers:
        bound = 1 / math.sqrt(inputs)
        for part in split[name]:
            values = part[0].flatten().double().numpy()
            assert abs(values).max() <= bound
            assert stats.kstest(values, "uniform", (-bound, 2 * bound)).pvalue > 1e-4
            assert not torch.equal(part[0], part[1]), "agents differ"
        reference = nn.Linear(inputs, outputs).weight.std()
        assert abs(split[name][0][0].std() / reference - 1) < 0.05


def test_a_head_more_does_not_change_the_others() -> None:
    plain, asap = (
        layouts("td3", METHODS[name], NetworkSizes(OBS, ACT, HIDDEN))[0]
        for name in ("plain", "asap")
    )
    first, second = (
        layout.init_params(Streams([0]), "actor", torch.float32) for layout in (plain, asap)
    )
    assert second.shape[1] > first.shape[1]
    assert torch.equal(second[:, : first.shape[1]], first), "the extra head lies behind the others"


def test_twins_start_apart() -> None:
    a, b = (CRITIC.init_params(Streams([0]), f"critic.{j}", torch.float32) for j in (0, 1))
    assert not torch.isclose(a, b).any()


def test_an_aligned_row_holds_the_same_layers_between_zeros() -> None:
    aligned = Layout(ACTOR.layers, alignment=8)
    compact, padded = (
        layout.init_params(Streams([0, 1]), "test", torch.float64) for layout in (ACTOR, aligned)
    )
    assert aligned.size % 8 == 0
    assert all(start % 8 == 0 for start, _ in aligned.spans)
    for a, b in zip(
        weight_list(ACTOR.unflatten(compact)), weight_list(aligned.unflatten(padded)), strict=True
    ):
        assert torch.equal(a, b)
    assert torch.equal(aligned.flatten(weight_list(aligned.unflatten(padded))), padded)
    assert padded.count_nonzero() == compact.count_nonzero()
