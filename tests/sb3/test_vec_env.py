"""EnvPool under SB3: every observation, end and seed is where SB3 looks for it."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("envpool")
import stable_baselines3
import torch
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

import damper
from damper.sb3 import PPO, EnvPoolVecEnv
from damper.sb3.convert import env_spec
from tests.sb3.models import weights

LIMIT = 200  # Pendulum's


@pytest.fixture
def pendulums():
    envs = EnvPoolVecEnv("Pendulum-v1", 2, threads=1)
    envs.seed(3)
    yield envs
    envs.close()


def test_every_step_is_one_that_the_environment_makes(pendulums):
    """Gymnasium's own pendulum, put where EnvPool's was, goes where EnvPool's went."""
    twin, generator = gymnasium.make("Pendulum-v1").unwrapped, np.random.default_rng(0)
    twin.reset(seed=0)
    obs = pendulums.reset()
    for step in range(1, 2 * LIMIT + 3):
        actions = generator.uniform(-2, 2, (2, 1)).astype(np.float32)
        before, (obs, rewards, done, infos) = obs, pendulums.step(actions)
        assert done.tolist() == [step % LIMIT == 0] * 2
        for i in range(2):
            twin.state = np.array(
                [np.arctan2(before[i, 1], before[i, 0]), before[i, 2]], np.float64
            )
            expected, reward, *_ = twin.step(actions[i])
            led_to = infos[i]["terminal_observation"] if done[i] else obs[i]
            np.testing.assert_allclose(led_to, expected, atol=2e-4)
            np.testing.assert_allclose(rewards[i], reward, atol=2e-3)
            assert infos[i].get("TimeLimit.truncated", False) == done[i]
            assert not done[i] or not np.allclose(obs[i], expected, atol=1e-2)


def test_a_fall_is_no_time_out():
    envs = EnvPoolVecEnv("Hopper-v5", 2, threads=1)
    envs.seed(0)
    envs.reset()
    ended = [info for _ in range(300) for info in envs.step(np.ones((2, 3), np.float32))[3] if info]
    envs.close()
    assert len(ended) > 5
    assert not any(info["TimeLimit.truncated"] for info in ended)


def test_a_fall_on_the_time_limit_s_own_step_is_no_time_out(pendulums, monkeypatch):
    pendulums.reset()
    receive = pendulums._pool.receive
    ends = np.array([True, False])
    monkeypatch.setattr(
        pendulums._pool,
        "receive",
        lambda: receive()._replace(terminated=ends, truncated=np.array([True, True])),
    )
    _, _, done, infos = pendulums.step(np.zeros((2, 1), np.float32))
    assert done.all()
    assert [info["TimeLimit.truncated"] for info in infos] == [False, True]


def test_seeds_decide_the_episodes_and_hold_for_one_reset(pendulums):
    first = pendulums.reset()
    again = pendulums.reset()
    assert not np.allclose(first, again, atol=1e-3)
    pendulums.seed(3)
    np.testing.assert_array_equal(pendulums.reset(), first)
    other = EnvPoolVecEnv("Pendulum-v1", 2, threads=1)
    assert not np.allclose(other.reset(), first, atol=1e-3)  # not seeded: drawn
    other.close()


def test_spaces_and_attributes_are_gymnasium_s(pendulums):
    theirs = gymnasium.make("Pendulum-v1")
    assert (
        pendulums.observation_space == theirs.observation_space
        and pendulums.action_space == theirs.action_space
    )
    assert [spec.id for spec in pendulums.get_attr("spec")] == ["Pendulum-v1"] * 2
    assert not pendulums.has_attr("gravity") and pendulums.env_is_wrapped(gymnasium.Wrapper, 0) == [
        False
    ]


def test_a_model_trains_on_it_saves_and_is_evaluated(tmp_path):
    def trained(kind, **own):
        envs = VecNormalize(VecMonitor(EnvPoolVecEnv("Hopper-v5", 2, threads=1)))
        return kind("MlpPolicy", envs, n_steps=64, n_epochs=2, seed=0, device="cpu", **own).learn(
            256
        )

    theirs, ours = trained(stable_baselines3.PPO), trained(PPO, method="plain")
    assert torch.equal(weights(theirs), weights(ours))
    assert ours.ep_info_buffer and all(info["l"] > 1 for info in ours.ep_info_buffer)
    assert env_spec(ours).id == "Hopper-v5"
    ours.save(tmp_path / "model")
    statistics = ours.get_vec_normalize_env()
    found = [
        damper.evaluate(source, episodes=2, backend="envpool", **extra).records()
        for source, extra in ((ours, {}), (tmp_path / "model.zip", {"vecnormalize": statistics}))
    ]
    assert [row["return"] for row in found[0]] == pytest.approx(
        [row["return"] for row in found[1]], rel=1e-3
    )
