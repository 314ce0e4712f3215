"""What is inside the timed interval, held by looking at what it changes."""

from __future__ import annotations

import sys

import pytest
import torch

from damper.errors import DamperError
from paper.bench.floor import least_bytes, operations
from paper.bench.workloads import (
    ExecutionMode,
    Transitions,
    backends,
    make_learner,
    paper_update,
    random_transitions,
    whole_update,
)

TARGETS = {"td3": {"actor_target", "critic_target"}, "sac": {"critic_target"}}


@pytest.fixture(scope="module")
def data() -> Transitions:
    return random_transitions("Pendulum", 450)


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_transitions_follow_each_other(data: Transitions) -> None:
    obs, next_obs, first = data.rows[:, :3], data.rows[:, 4:7], data.rows[:, -1] > 0
    assert first.nonzero().flatten().tolist() == [0, 200, 400]
    follows = (next_obs[:-1] == obs[1:]).all(1)
    assert torch.equal(follows, ~first[1:])
    assert data.rows[:, 3].min() < -0.9 and data.rows[:, 3].max() > 0.9


def test_transitions_come_from_whoever_can_step_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("envpool")
    assert backends("Pendulum") == ["gymnasium", "envpool"]
    for module in (
        "gymnasium.envs.box2d",
        "gymnasium.envs.box2d.lunar_lander",
    ):  # the second may be imported already
        monkeypatch.setitem(sys.modules, module, None)
    assert backends("LunarLander") == ["envpool"]
    assert random_transitions("LunarLander", 3).spec.act_dim == 2
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert backends("Pendulum") == ["gymnasium"]
    with pytest.raises(DamperError, match=r"pip install \"damper-rl\[box2d\]\""):
        random_transitions("LunarLander", 3)


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_the_paper_s_scope_leaves_targets_and_diagnostics_out(
    data: Transitions, backbone: str
) -> None:
    learner = make_learner(
        data, backbone, "damper+asap", ExecutionMode(batch_size=16), net_arch=(12, 10)
    )
    before = {name: tensor.clone() for name, tensor in learner.state().items()}
    paper_update(learner)(2)
    moved = changed(before, learner.state())
    assert {"actor", "critic", "actor.m", "critic.v", "updates"} <= moved
    assert not moved & (TARGETS[backbone] | {"actor_average", "diagnostics", "diagnosed"})


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_a_whole_update_holds_them(data: Transitions, backbone: str) -> None:
    learner = make_learner(
        data, backbone, "damper", ExecutionMode(batch_size=16), net_arch=(12, 10)
    )
    before = {name: tensor.clone() for name, tensor in learner.state().items()}
    whole_update(learner)(2)
    assert TARGETS[backbone] | {"actor", "critic", "diagnostics", "diagnosed"} <= changed(
        before, learner.state()
    )


def test_td3_s_actor_has_every_second_iteration(data: Transitions) -> None:
    learner = make_learner(data, "td3", "plain", ExecutionMode(batch_size=16), net_arch=(12, 10))
    run = paper_update(learner)
    run(7)
    assert (learner.state()["critic.t"], learner.state()["actor.t"]) == (7, 3)


def test_damper_is_timed_as_the_paper_does(data: Transitions) -> None:
    assert (
        make_learner(data, "td3", "damper", ExecutionMode()).settings.method_settings["eta"] == 0.0
    )


def test_operations_are_those_of_the_layers(data: Transitions) -> None:
    made = {
        m: make_learner(data, "td3", m, ExecutionMode(batch_size=16), net_arch=(12, 10))
        for m in ("plain", "damper")
    }
    q, mu = 4 * 12 + 12 * 10 + 10, 3 * 12 + 12 * 10 + 10
    target, critic = mu + 2 * q, 2 * q + 2 * q + 2 * (q - 4 * 12)
    forward_backward = mu + mu + (mu - 3 * 12)
    actor, smooth = q + q, mu + 2 * (mu + mu - 3 * 12)
    expected = {
        "plain": target + critic + (forward_backward + actor) / 2,
        "damper": target + critic + (forward_backward + actor + smooth) / 2,
    }
    for method, learner in made.items():
        assert operations(learner) == 2 * 16 * expected[method]
    sizes = {name: tensor.numel() * 4 for name, tensor in made["plain"].state().items()}
    expected_bytes = 6 * (sizes["critic"] + sizes["actor"] / 2) + sizes["critic"] + sizes["actor"]
    assert least_bytes(made["plain"]) == expected_bytes
