"""Acting and learning: which noise, which actions, which updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from damper.engine.data.random_streams import Streams
from damper.engine.fused import Fused
from damper.engine.gradients import Autograd, CriticGradient, Given
from damper.engine.loop.acting import Acting
from damper.engine.update.learner import Learner
from damper.interface import Batch
from tests.engine import small

OBS = np.array([[0.6, 0.8, -1.0], [1.0, 0.0, 2.0]], np.float32)


def rollout(learner: Learner, obs: np.ndarray, updates: int) -> list[np.ndarray]:
    """Act on the same observations and update, in turn."""
    acting, actions = Acting(learner), []
    for _ in range(updates):
        actions.append(np.stack(acting.act(obs)))
        learner.update()
    return actions


@pytest.mark.parametrize(("backbone", "ent_coef"), [("td3", "auto"), ("sac", "auto"), ("sac", 0.2)])
def test_an_agent_acts_and_learns_alone_as_in_a_population(
    backbone: str, ent_coef: float | str
) -> None:
    shared = {"learning_starts": 10, "ent_coef": ent_coef}
    made = small.settings(
        backbone, "damper", seeds=(3, 5), eta=(0.0, 0.5, 1.0), learning_rate=(1e-3, 1e-4), **shared
    )
    together = small.learner(made)
    j = 9
    agent = made.agents()[j]
    assert agent == {"learning_rate": 1e-4, "eta": 0.5, "seed": 5}
    own = {"seeds": (5,), "eta": 0.5, "learning_rate": 1e-4}
    alone = small.learner(small.settings(backbone, "damper", **own, **shared))
    ours, theirs = small.noise(together, torch.tensor(7)), small.noise(alone, torch.tensor(7))
    for name, draw in ours.items():
        assert torch.equal(draw[j], theirs[name][0])
    acted = zip(
        rollout(together, np.repeat(OBS, 6, 0), 100), rollout(alone, OBS[1:], 100), strict=True
    )
    for ours, theirs in acted:
        np.testing.assert_allclose(ours[:, j], theirs[:, 0], rtol=0, atol=1e-5)
    assert together.acted.tolist() == [100] * 12 and alone.acted.tolist() == [100]
    for name in together.state():
        pairs = zip(
            small.pieces(together, name, j),
            small.pieces(alone, name, 0),
            strict=True,
        )
        for a, b in pairs:
            assert (a - b).norm() <= 1e-5 * b.norm(), name


@pytest.mark.parametrize("compile", [False, True])
def test_how_an_update_runs_is_one_choice(compile: bool) -> None:
    made = small.learner(small.settings("td3", "damper+pave", compile=compile))
    optimiser = made.optimisers["actor"]
    assert type(made.gradients) is (Fused if compile else Autograd)
    assert (made.agent_by_agent, optimiser.agent_by_agent) == (not compile, not compile)
    assert (made.compiled(made.update) == made.update) is not compile


def test_a_term_more_shifts_no_other_draw() -> None:
    plain, caps = (small.learner(small.settings(method=name)) for name in ("plain", "caps"))
    count = torch.tensor(3)
    first, second = small.noise(plain, count), small.noise(caps, count)
    assert set(first) < set(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(plain.state()["actor"], caps.state()["actor"])


# --- acting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_first_actions_are_uniform_and_td3_adds_its_noise_to_them(backbone: str) -> None:
    learner = small.learner(
        small.settings(backbone, seeds=(4, 7), learning_starts=400, action_noise=0.3)
    )
    acting, streams, actions = Acting(learner), Streams([4, 7]), []
    for step in range(400):
        sent, action, mean = acting.act(OBS)
        expected = streams.uniform("random", step, (1, 1))[:, 0]
        if backbone == "td3":
            expected = (expected + 0.3 * streams.normal("exploration", step, (1, 1))[:, 0]).clamp(
                -1, 1
            )
        np.testing.assert_allclose(action, expected.numpy(), atol=1e-6)
        np.testing.assert_allclose(sent, 2 * action, atol=1e-6)  # Pendulum's torque is in ±2
        np.testing.assert_allclose(
            mean, learner.networks.actor()(torch.tensor(OBS)[:, None])[:, 0], atol=1e-6
        )
        actions.append(action[:, 0])
    if backbone == "sac":
        for own in np.stack(actions, 1):
            assert stats.kstest(own, "uniform", (-1, 2)).pvalue > 1e-4


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_later_actions_are_the_policy_s_with_its_exploration(backbone: str) -> None:
    learner = small.learner(
        small.settings(backbone, seeds=(4, 7), learning_starts=3, action_noise=0.3)
    )
    acting, obs, streams = Acting(learner), torch.tensor(OBS)[:, None], Streams([4, 7])
    for step in range(10):
        action = acting.act(OBS)[1]
        noise = streams.normal("exploration", step, (1, 1))[:, 0]
        actor = learner.networks.actor()
        if backbone == "td3":
            expected = (actor(obs)[:, 0] + 0.3 * noise).clamp(-1, 1)
        else:
            mean, log_std = (part[:, 0] for part in actor.distribution(obs))
            expected = torch.tanh(mean + log_std.exp() * noise)
        assert np.allclose(action, expected.numpy(), atol=1e-6) == (step >= 3)


def test_a_frozen_agent_acts_safely_and_the_others_as_before() -> None:
    clean, spoiled = (small.learner(small.settings(learning_starts=0)) for _ in range(2))
    spoiled.state()["actor"][0] = float("nan")
    ours, theirs = Acting(clean).act(OBS), Acting(spoiled).act(OBS)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a[1], b[1])
        np.testing.assert_array_equal(b[0], 0.0)  # the middle of ±2


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backbone", "delay"), [("td3", 1), ("td3", 2), ("td3", 3), ("sac", 2)])
def test_td3_moves_actor_and_targets_at_every_policy_delay_th_update_only(
    backbone: str, delay: int
) -> None:
    learner = small.learner(small.settings(backbone, policy_delay=delay))
    watched = [
        name
        for name in ("actor", "actor_target", "critic_target", "critic")
        if name in learner.state()
    ]
    for update in range(1, 8):
        before = {name: learner.state()[name].clone() for name in watched}
        learner.update()
        moved = {name for name in watched if not torch.equal(before[name], learner.state()[name])}
        with_actor = backbone == "sac" or update % delay == 0
        assert moved == (set(watched) if with_actor else {"critic"})
        assert learner.updates == update == int(learner.state()["updates"])


@pytest.mark.parametrize("method", ["plain", "asap"])
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_it_updates_as_a_population_does(backbone: str, method: str) -> None:
    ours, theirs = (small.learner(small.settings(backbone, method)) for _ in range(2))
    for update in range(1, 6):
        fields, noise = theirs.sample()
        theirs.update_on(Batch(*fields), noise, backbone == "sac" or update % 2 == 0)
        ours.update()
    for name, tensor in ours.state().items():
        assert torch.equal(tensor, theirs.state()[name]), name


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_the_environment_s_units_are_those_of_its_actions(backbone: str) -> None:
    units = ("policy", "environment")
    made = [
        small.learner(small.settings(backbone, "pegrad", policy_delay=1, units=one))
        for one in units
    ]
    for learner in made:
        learner.update()
    policy, environment = (
        learner.state()["diagnostics"][2] for learner in made
    )  # the auxiliary losses
    torch.testing.assert_close(environment, 4.0 * policy)  # actions within ±2
    assert not torch.equal(*(learner.state()["actor"] for learner in made))


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_asap_s_average_moves_once_at_every_update(backbone: str) -> None:
    learner = small.learner(small.settings(backbone, "asap"))
    for _ in range(4):
        before = learner.state()["actor_average"].clone()
        learner.update()
        moved = before + 0.01 * (learner.state()["actor"] - before)
        torch.testing.assert_close(learner.state()["actor_average"], moved, rtol=1e-5, atol=1e-7)


def test_each_update_draws_its_own_batch_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, seen = small.learner(small.settings(batch_size=4)), []

    original = learner.gradients.of_critics

    def record(given: Given) -> CriticGradient:
        batch, noise, _ = given
        seen.append((batch.obs.flatten().tolist(), noise["target"].flatten().tolist()))
        return original(given)

    monkeypatch.setattr(learner.gradients, "of_critics", record)
    for _ in range(5):
        learner.update()
    for part in (0, 1):
        drawn = [values[part] for values in seen]
        assert all(drawn[i] != drawn[j] for i in range(5) for j in range(i))


def test_the_share_of_the_budget_reaches_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, seen = small.learner(small.settings(steps=300, policy_delay=1), rows=0), []
    row = np.zeros(learner.replay.rows.shape[1:], np.float32)
    for half in ("of_critics", "of_actors"):
        original = getattr(learner.gradients, half)
        monkeypatch.setattr(
            learner.gradients,
            half,
            lambda given, *rest, call=original: (
                seen.append(float(given.batch.progress)),
                call(given, *rest),
            )[1],
        )
    for _ in range(3):
        for _ in range(75):
            learner.replay.add(row)
        learner.update()
    assert seen == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75]


@pytest.mark.parametrize(
    ("buffer_size", "steps", "capacity"), [(1_000_000, 300, 300), (100, 300, 100)]
)
def test_replay_has_the_size_that_the_run_can_fill(
    buffer_size: int, steps: int, capacity: int
) -> None:
    learner = small.learner(small.settings(buffer_size=buffer_size, steps=steps), rows=0)
    assert learner.replay.rows.shape[:2] == (capacity, 2)
