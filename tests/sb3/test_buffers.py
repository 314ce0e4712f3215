"""Smoothness losses see true neighbours, whatever the replay buffer does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from damper.errors import DamperError
from damper.sb3 import IndexedReplayBuffer
from damper.sb3.buffers import indexed
from tests.sb3.models import OURS, Counter, make, quiet

LENGTHS = (5, 3, 7)


def counters(ends: str = "terminated") -> DummyVecEnv:
    """Three environments whose episodes end at different times."""
    return DummyVecEnv([lambda n=n: Counter(n, ends) for n in LENGTHS])


def filled(backbone: str = "td3", steps: int = 60, env=None, **settings):
    model = make(OURS[backbone], env or counters(), learning_starts=10**6, **settings)
    return quiet(model).learn(steps)


def states(draw):
    """Previous, own and next (episode, step) of each sample."""
    return (
        t.numpy()
        for t in (
            draw.smoothness_batch.previous_obs,
            draw.smoothness_batch.obs,
            draw.smoothness_batch.next_obs,
        )
    )


@pytest.mark.parametrize("buffer_size", [3000, 60])
def test_the_previous_observation_is_the_one_before_in_its_episode(buffer_size):
    model = filled(method="grad-caps", buffer_size=buffer_size, steps=300)
    before, now, _ = states(model._sample_inputs(512))
    inside = now[:, 1] > 0
    followed = (before == now - [0, 1]).all(1)
    stands_in = (before == now).all(1)
    assert (stands_in | followed).all()
    assert stands_in[~inside].all()
    # Only the ring's oldest row may have lost its predecessor.
    oldest = model.replay_buffer.observations[
        model.replay_buffer.pos if model.replay_buffer.full else 0
    ]
    lost = inside & stands_in
    assert all(any((row == now[i]).all() for row in oldest) for i in np.flatnonzero(lost))
    assert followed.sum() > 300


def test_a_new_call_of_learn_starts_a_new_episode():
    model = filled(
        method="grad-caps", steps=12
    )  # stops inside the first two environments' episodes
    model.learn(12)
    before, now, _ = states(model._sample_inputs(512))
    assert (before == np.where((now[:, 1] > 0)[:, None], now - [0, 1], now)).all()


@pytest.mark.parametrize(("ends", "masked"), [("terminated", True), ("truncated", False)])
def test_n_step_returns_keep_the_true_successor(ends, masked):
    model = filled(method="damper", n_steps=3, env=counters(ends))
    draw = model._sample_inputs(512)
    now, after = draw.smoothness_batch.obs.numpy(), draw.smoothness_batch.next_obs.numpy()
    ahead = draw.sb3_batch.next_obs.numpy()
    assert (after - now == [0, 1]).all()
    assert (ahead[:, 1] - now[:, 1] > 1).mean() > 0.3  # SB3's target does look further
    last = np.isin(after[:, 1], LENGTHS) & (draw.smoothness_batch.terminated.numpy() == 1)
    assert last.any() == masked
    assert draw.gamma.shape == draw.sb3_batch.reward.shape


def test_remembering_rows_changes_no_sample():
    plain, ours = filled(method="plain").replay_buffer, filled(method="grad-caps").replay_buffer
    assert type(plain) is ReplayBuffer
    np.random.seed(3)
    first, state = plain.sample(64), np.random.random()
    np.random.seed(3)
    with indexed(ours, "grad-caps"):
        assert isinstance(ours, IndexedReplayBuffer)
        second = ours.sample(64)
    assert np.random.random() == state
    for a, b in zip(first[:5], second[:5], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("settings", [{"n_steps": 3}, {"method": "grad-caps"}])
def test_the_buffer_stays_sb3s_own_and_is_saved_as_such(settings, tmp_path):
    model = filled(**settings)
    model.train(gradient_steps=2, batch_size=16)
    assert type(model.replay_buffer) is (
        NStepReplayBuffer if "n_steps" in settings else ReplayBuffer
    )
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    assert (
        b"damper" not in (tmp_path / "buffer.pkl").read_bytes()
    )  # it loads where only SB3 is installed


def test_previous_observations_are_normalised_like_the_others():
    env = VecNormalize(counters(), norm_obs=True)
    model = filled(method="grad-caps", env=env, steps=90)
    draw = model._sample_inputs(256)
    raw = env.unnormalize_obs(draw.smoothness_batch.previous_obs.numpy())
    now = env.unnormalize_obs(draw.smoothness_batch.obs.numpy())
    expected = np.where((now[:, 1] > 0.5)[:, None], now - [0, 1], now)
    assert np.abs(raw - expected).max() < 1e-3


def test_hindsight_goals_reach_the_previous_observation():
    env = BitFlippingEnv(n_bits=4, continuous=True)
    model = filled(
        method="grad-caps",
        env=env,
        policy="MultiInputPolicy",
        steps=200,
        replay_buffer_class=HerReplayBuffer,
    )
    draw = model._sample_inputs(256)
    before, now = draw.smoothness_batch.previous_obs, draw.smoothness_batch.obs
    assert torch.equal(before["desired_goal"], now["desired_goal"])
    rows, envs = model.replay_buffer.rows
    stored = model.replay_buffer.observations["observation"][rows, envs]
    assert np.array_equal(now["observation"].numpy(), stored)
    assert not torch.equal(before["observation"], now["observation"])
    model.train(gradient_steps=2, batch_size=32)


class Custom(ReplayBuffer):
    pass


class CustomRows(IndexedReplayBuffer, Custom):
    pass


def test_a_custom_buffer_is_refused_where_neighbours_are_needed():
    with pytest.raises(
        DamperError, match="Custom does not: use one of them, or let it also inherit from"
    ):
        make(OURS["td3"], method="grad-caps", replay_buffer_class=Custom)
    make(OURS["td3"], method="damper", replay_buffer_class=Custom)


def test_a_custom_buffer_that_remembers_rows_serves():
    model = filled(method="grad-caps", replay_buffer_class=CustomRows)
    before, now, _ = states(model._sample_inputs(256))
    assert (before == np.where((now[:, 1] > 0)[:, None], now - [0, 1], now)).all()


def test_a_custom_n_step_buffer_is_refused():
    class Ahead(NStepReplayBuffer):
        pass

    with pytest.raises(DamperError, match="needs each sample's neighbours"):
        make(OURS["td3"], replay_buffer_class=Ahead)
    make(OURS["td3"], method="plain", replay_buffer_class=Ahead)


def test_memory_saving_buffers_are_refused_unless_ends_are_masked():
    saving = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    make(OURS["td3"], method="damper", **saving)
    for method in (
        {"method": "caps"},
        {"method": "damper", "mask_terminal": False},
        {"method": "pave"},
    ):
        with pytest.raises(DamperError, match="optimize_memory_usage must be False"):
            make(OURS["td3"], **method, **saving)


def test_a_loaded_buffer_is_prepared(tmp_path):
    model = filled(method="plain")
    model.save_replay_buffer(tmp_path / "buffer")
    other = make(OURS["td3"], counters(), method="grad-caps")
    other.load_replay_buffer(tmp_path / "buffer")
    before, now, _ = states(other._sample_inputs(128))
    assert (before == np.where((now[:, 1] > 0)[:, None], now - [0, 1], now)).all()
