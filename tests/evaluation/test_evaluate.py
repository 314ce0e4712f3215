"""Evaluation: the right seeds, the right policy, the right numbers."""

from __future__ import annotations

import json
import shutil

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import damper
from damper.cli.evaluate import table
from damper.compare import Comparison
from damper.evaluation.evaluate import evaluation_seeds
from damper.protocols import EVALUATION_SEEDS
from tests import tiny
from tests.engine.diary import Diary


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny.train(tmp_path_factory.mktemp("run") / "r", eta=[0.0, 1.0])


def gymnasium_episode(policy, seed, env=None):
    """One deterministic episode with nothing but Gymnasium and a policy: return, actions, whether it fell."""
    env = env or gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=seed)
    total, actions, terminated, truncated = 0.0, [], False, False
    while not (terminated or truncated):
        action = policy(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += reward
        actions.append(action)
    return total, np.array(actions), terminated


def test_every_agent_and_seed_equals_a_plain_gymnasium_loop(run):
    evaluation = damper.evaluate(run, episodes=3)
    assert [len(episodes) for episodes in evaluation.episodes] == [3] * 4
    for index in range(4):
        for episode in evaluation.episodes[index]:
            total, actions, _ = gymnasium_episode(run.policy(index), episode.seed)
            assert episode.total == pytest.approx(total, rel=1e-5)
            np.testing.assert_allclose(episode.executed, actions, atol=1e-5)
            assert episode.record()["sm"] == pytest.approx(damper.smoothness(actions), rel=1e-4)


def test_a_swept_setting_is_no_measure(run, tmp_path):
    mixed = tiny.train(tmp_path / "r", eta=[0.5, "linear:0:1"])
    for own in (run, mixed):
        for measures in damper.evaluate(own, episodes=1).summary().values():
            assert "eta" not in measures and {
                "return",
                "length",
                "sm",
                "mean_change",
            } <= set(measures)


def test_an_episode_is_over_when_it_ends_though_others_go_on():
    """Episodes of 1 to 8 steps: those that ran out of time are reset, and fall while longer ones still run."""

    def policy(obs):
        return np.sin(obs[..., 1:3].sum(-1, keepdims=True)).astype(np.float32)

    seeds = range(30)
    (episodes,) = damper.evaluate(policy, Diary, seeds=seeds).episodes
    assert {episode.length for episode in episodes} == set(range(1, 9))
    for seed, episode in zip(seeds, episodes, strict=True):
        total, actions, terminated = gymnasium_episode(policy, seed, Diary())
        assert episode.seed == seed and episode.total == pytest.approx(total, abs=1e-6)
        assert episode.terminated is terminated
        np.testing.assert_allclose(episode.executed, actions, atol=1e-6)
        np.testing.assert_array_equal(episode.raw, episode.executed)


def test_a_diverged_policy_is_evaluated_to_the_end_and_changes_no_other(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    diverged = run.policy(1)
    diverged.flat_params.fill_(float("nan"))
    spoiled = damper.Run(tmp_path / "run")
    diverged.save(spoiled.policy_path(1))
    sound, found = (damper.evaluate(source, episodes=2).episodes for source in (run, spoiled))
    for index in (0, 2, 3):
        for ours, theirs in zip(found[index], sound[index], strict=True):
            assert ours.total == theirs.total and np.array_equal(ours.executed, theirs.executed)
    for episode in found[1]:  # torque 0, the middle of the range
        total, actions, _ = gymnasium_episode(lambda obs: np.zeros(1, np.float32), episode.seed)
        assert episode.total == pytest.approx(total) and np.array_equal(episode.executed, actions)


def test_default_seeds_are_the_protocols_ten():
    assert evaluation_seeds(10) == EVALUATION_SEEDS
    assert evaluation_seeds(12)[10:] == (1_000_000, 1_000_001)


def test_summary_separates_spread_over_seeds_from_pooled(run):
    evaluation = damper.evaluate(run, episodes=2)
    summary = evaluation.summary()
    assert list(summary) == ["eta=0", "eta=1"]
    totals = np.array([[e.total for e in episodes] for episodes in evaluation.episodes[:2]])
    row = summary["eta=0"]["return"]
    assert row["mean"] == pytest.approx(totals.mean())
    assert row["over_seeds"] == pytest.approx(abs(totals[0].mean() - totals[1].mean()) / np.sqrt(2))
    assert row["pooled"] == pytest.approx(np.sqrt(((totals - totals.mean()) ** 2).sum() / 3))


def test_records_and_traces_come_back(run, tmp_path):
    evaluation = damper.evaluate(run, episodes=2)
    evaluation.save(str(tmp_path))
    records = json.loads((tmp_path / "episodes.json").read_text())["episodes"]
    traces = load_file(tmp_path / "traces.safetensors")
    assert len(records) == 8
    assert records[0]["training_seed"] == 0
    np.testing.assert_array_equal(traces["executed.0001.6021"], evaluation.episodes[1][1].executed)


def test_a_policy_file_and_a_callable_are_evaluated_alike(run):
    path = run.policy_path(2)
    policy = run.policy(2)
    from_file, from_callable = (
        damper.evaluate(path, episodes=2),
        damper.evaluate(policy, "Pendulum-v1", episodes=2),
    )
    for a, b in zip(from_file.episodes[0], from_callable.episodes[0], strict=True):
        assert a.total == b.total
    wrapped = damper.evaluate(lambda obs: policy(obs), "Pendulum-v1", episodes=2)
    assert wrapped.episodes[0][0].total == pytest.approx(from_file.episodes[0][0].total, rel=1e-6)


def shortened():
    return gymnasium.wrappers.TimeLimit(gymnasium.make("Pendulum-v1").unwrapped, 50)


def test_an_environment_from_a_callable_must_be_given_again(tmp_path):
    small = {
        "steps": 60,
        "net_arch": (8, 8),
        "batch_size": 8,
        "learning_starts": 50,
        "progress": False,
    }
    own = damper.train(shortened, out=tmp_path / "run", **small)
    with pytest.raises(
        damper.DamperError,
        match=r"env must be given, .*: pass the function that made it, as in damper.evaluate\(run, env=",
    ):
        damper.evaluate(
            own, episodes=1
        )  # as Pendulum-v1, whose name it carries, it would be four times as long
    assert damper.evaluate(own, shortened, episodes=1).episodes[0][0].length == 50


def test_an_episode_without_an_end_is_told(monkeypatch, caplog):
    monkeypatch.setattr("damper.engine.envs.run_episodes.WARN_AFTER_STEPS", 50)

    def still(obs):
        return np.zeros((len(obs), 1))

    damper.evaluate(still, shortened, episodes=2)
    assert "no end" not in caplog.text
    damper.evaluate(still, "Pendulum-v1", episodes=2)
    assert caplog.text.count("has not ended after 50 steps") == 1 and "TimeLimit" in caplog.text


def _with_a_graph(obs):
    return torch.zeros(len(obs), 1, requires_grad=True)


def test_numbers_may_be_numpy_s(run):
    evaluation = damper.evaluate(run, seeds=np.arange(2))
    assert [type(record["seed"]) for record in evaluation.records()[:2]] == [int, int]
    assert len(damper.evaluate(run, episodes=np.int64(2)).episodes[0]) == 2
    np.testing.assert_array_equal(
        damper.load(run.path, agent=np.int64(1)).flat_params, run.policy(1).flat_params
    )


def half_as_strong():
    return gymnasium.wrappers.RescaleAction(
        gymnasium.make("Pendulum-v1"), np.float32(-1.0), np.float32(1.0)
    )


def test_another_action_range_is_told(run, caplog, tmp_path):
    from damper.export import export

    pytest.importorskip("onnxruntime")
    export(run, tmp_path / "p.onnx", episodes=0)
    for source in (run, run.policy(), tmp_path / "p.onnx"):
        damper.evaluate(source, episodes=1)
        assert not caplog.text
        damper.evaluate(source, half_as_strong, episodes=1)
        assert (
            r"the policy's actions go from [-2.0] to [2.0], but" in caplog.text
            and "not rescaled" in caplog.text
        )
        caplog.clear()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: damper.evaluate(lambda obs: obs), "env must be given"),
        (lambda run: damper.evaluate(run, episodes=0), "episodes must be at least 1"),
        (
            lambda run: damper.evaluate(run, episodes=2.5),
            "episodes must be at least 1, a whole number, but 2.5 was given",
        ),
        (
            lambda run: damper.evaluate(run, seeds=5),
            "seeds must be the environments' seeds, .* but 5 was given: use episodes",
        ),
        (
            lambda run: damper.evaluate(run, filter=0.3),
            "filter must read low-pass:ALPHA .*, but 0.3 was given",
        ),
        (
            lambda run: damper.evaluate(run.policy().predict, "Pendulum-v1"),
            r"returned a tuple: .* predict\(obs\)\[0\]",
        ),
        (
            lambda run: damper.evaluate(_with_a_graph, "Pendulum-v1"),
            r"returned a Tensor: .*\.detach\(\)",
        ),
        (
            lambda run: damper.load(run),
            "path must be a file or folder, but a Run was given: it is already loaded",
        ),
        (lambda run: damper.evaluate("nowhere"), "nowhere does not exist"),
        (lambda run: damper.evaluate(3), "run_or_policy must be"),
        (
            lambda run: damper.evaluate(torch.nn.Linear(3, 1), "Pendulum-v1"),
            "Linear is a module .*: wrap it",
        ),
        (lambda run: run.policy(9), "agent must be 0 to 3"),
    ],
)
def test_mistakes_get_one_sentence(run, call, words):
    with pytest.raises(damper.DamperError, match=words):
        call(run)


class TwoActions(gymnasium.Wrapper):
    """Pendulum with a second action that does nothing: as many observations, other actions."""

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.action_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)

    def step(self, action):
        return self.env.step(action[:1])


@pytest.mark.parametrize(
    ("env", "has"), [("MountainCarContinuous-v0", "2 and 1"), (TwoActions, "3 and 2")]
)
def test_other_shapes_are_refused_everywhere(run, env, has, tmp_path):
    from damper.export import export

    pytest.importorskip("onnxruntime")
    sb3 = pytest.importorskip("damper.sb3")
    model = sb3.TD3("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8]}, buffer_size=100)
    model.save(tmp_path / "model.zip")
    export(run, tmp_path / "p.onnx", episodes=0)
    for source in (
        run,
        run.path,
        run.policy(),
        run.policy_path(0),
        model,
        tmp_path / "model",
        tmp_path / "p.onnx",
    ):
        with pytest.raises(
            damper.DamperError, match=f"the policy's 3 observations and 1 actions, but .* has {has}"
        ):
            damper.evaluate(source, env, episodes=1)
    with pytest.raises(
        damper.DamperError, match=r"the policy must give 1 actions .*but gave shape \(1, 2\)"
    ):
        damper.evaluate(lambda obs: np.zeros((len(obs), 2)), "Pendulum-v1", episodes=1)
    with pytest.raises(
        damper.DamperError, match=r"the policy must give 2 actions .*but gave shape \(1, 1\)"
    ):
        damper.evaluate(lambda obs: np.zeros((len(obs), 1)), TwoActions, episodes=1)


def test_evaluate_takes_what_the_command_takes(run, tmp_path):
    from damper.export import export

    pytest.importorskip("onnxruntime")
    sb3 = pytest.importorskip("damper.sb3")
    kwargs = {"net_arch": [16, 16], "activation_fn": torch.nn.SiLU}
    model = sb3.TD3("MlpPolicy", "Pendulum-v1", policy_kwargs=kwargs, buffer_size=100, seed=7)
    sb3.to_sb3(run.policy(0), model)
    model.save(tmp_path / "model.zip")
    export(run, tmp_path / "p.onnx", episodes=0)
    expected = damper.evaluate(damper.Run(str(run.path)), episodes=1).episodes[0][0]
    for source in (
        str(run.path),
        model,
        str(tmp_path / "model"),
        str(tmp_path / "model.zip"),
        str(tmp_path / "p.onnx"),
    ):
        evaluation = damper.evaluate(source, episodes=1)
        np.testing.assert_allclose(evaluation.episodes[0][0].executed, expected.executed, atol=1e-3)
    assert (
        damper.evaluate(model, episodes=1).agents
        == damper.evaluate(tmp_path / "model", episodes=1).agents
    )
    assert damper.evaluate(model, episodes=1).agents == [{"seed": 7}]


def test_a_model_of_another_algorithm_is_evaluated_in_memory():
    from stable_baselines3 import DQN, PPO

    assert (
        damper.evaluate(PPO("MlpPolicy", "Pendulum-v1", n_steps=64, device="cpu"), episodes=1).env
        == "Pendulum-v1"
    )
    with pytest.raises(
        damper.DamperError, match="the model's action space must be a Box, but is Discrete"
    ):
        damper.evaluate(DQN("MlpPolicy", "CartPole-v1", buffer_size=100, device="cpu"), episodes=1)


def test_a_policy_that_does_nothing_is_told(caplog):
    damper.evaluate(lambda obs: 0.01 * obs[:, :1], "Pendulum-v1", episodes=1)
    assert not caplog.text, "one that hardly moves still reacts"
    damper.evaluate(lambda obs: np.zeros((len(obs), 1)), "Pendulum-v1", episodes=2)
    assert (
        caplog.text.count("holds one action throughout each episode") == 1
        and "smaller eta" in caplog.text
    )


def test_agents_that_hold_one_action_are_named_and_marked(run, caplog, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    copied = damper.Run(tmp_path / "run")
    still = copied.policy(3)
    still.flat_params.zero_()
    still.save(copied.policy_path(3))
    evaluation = damper.evaluate(copied, episodes=1)
    assert evaluation.constant_agents() == [3]
    assert (
        caplog.text.count("holds one action") == 1
        and "the agent of damper, eta 1.0, seed 1 holds" in caplog.text
    )
    both = {"plain": damper.evaluate(run, episodes=1), "damper": evaluation}
    marked = [
        "plain eta=0",
        "plain eta=1",
        "damper eta=0",
        "damper eta=1\n(constant action, 1 of 2)",
    ]
    assert [row[0] for row in Comparison("", "td3", tmp_path, {}, both).table()[1]] == marked
    assert [row[0] for row in table(evaluation)[1]] == ["eta=0", "eta=1\n(constant action, 1 of 2)"]
