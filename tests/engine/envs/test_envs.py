"""Pools of both back ends: true transitions only, explicit seeds, resuming."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.spaces import Box

from damper.engine.envs import make_pool, spec_of
from damper.engine.envs.pool import InexactReplayError
from damper.errors import DamperError
from tests.engine.diary import Diary
from tests.engine.pools import play, random_actions, through_a_file

needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="envpool is not installed")
BACKENDS = ["gymnasium", pytest.param("envpool", marks=needs_envpool)]


class Noisy(gymnasium.Env[Any, Any]):
    """Draws from `np_random` in its steps too, and takes and gives numbers instead of vectors."""

    observation_space = Box(-np.inf, np.inf, ())
    action_space = Box(-1.0, 1.0, ())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.normal()
        return np.float32(self.x), {}

    def step(self, action: Any) -> Any:
        self.x += action * self.np_random.normal()
        return np.float32(self.x), 0.0, abs(self.x) > 3, False, {}


def test_gymnasium_yields_true_pairs_only() -> None:
    pool = make_pool(Diary, range(100, 110))
    rng = np.random.default_rng(0)
    s, falls, timeouts = pool.reset(), 0, 0
    for _ in range(10_000):
        actions = random_actions(pool, rng)
        next_obs, reward, terminated, truncated, obs = pool.step(actions)
        ended = terminated | truncated
        np.testing.assert_array_equal(next_obs, s + np.array([0, 0, 1, 0, 0], np.float32))
        np.testing.assert_array_equal(reward, actions[:, 0])
        np.testing.assert_array_equal(ended, next_obs[:, 2] == next_obs[:, 3])
        np.testing.assert_array_equal(
            obs[:, :3], np.where(ended[:, None], s[:, :3] * [1, 1, 0] + [0, 1, 0], next_obs[:, :3])
        )
        s, falls, timeouts = obs, falls + terminated.sum(), timeouts + truncated.sum()
    assert falls > 1_000 and timeouts > 1_000


def pendulum(s: Any, action: Any) -> Any:
    """Pendulum-v1's own equation: g = 10, m = l = 1, dt = 0.05."""
    angle = np.arctan2(s[:, 1], s[:, 0])
    speed = np.clip(s[:, 2] + (15 * np.sin(angle) + 3 * action[:, 0]) * 0.05, -8, 8)
    angle = angle + speed * 0.05
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_pendulum_pairs_obey_its_equation_and_time_out(backend: str) -> None:
    pool = make_pool("Pendulum", range(5), backend, threads=1, max_episode_steps=7)
    rng = np.random.default_rng(0)
    s = pool.reset()
    for t in range(1, 10_001 if backend == "envpool" else 1_001):
        actions = random_actions(pool, rng)
        next_obs, _, terminated, truncated, obs = pool.step(actions)
        np.testing.assert_allclose(next_obs, pendulum(s, actions), atol=1e-5)
        assert not terminated.any() and (truncated == (t % 7 == 0)).all()
        assert (abs(obs[truncated, 2]) <= 1).all(), "a new episode starts slowly"
        s = obs
    pool.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_is_sent_once_and_received_once(backend: str) -> None:
    pool = make_pool("Pendulum", range(2), backend)
    actions = np.zeros((2, 1), np.float32)
    with pytest.raises(DamperError, match="must be reset before its first step"):
        pool.send(actions)
    for _ in range(2):
        pool.reset()
        with pytest.raises(DamperError, match=r"but none was sent; call pool\.send first"):
            pool.receive()
        with pytest.raises(DamperError, match="actions must be finite"):
            pool.send(actions * np.nan)
        pool.send(actions)
        with pytest.raises(
            DamperError, match=r"but one is still pending; call pool\.receive first"
        ):
            pool.send(actions)
        assert pool.receive().reward.shape == (2,)
        pool.send(actions)  # and start over with a step still out


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_do_not_change_after_they_were_given(backend: str) -> None:
    pool = make_pool("Pendulum", range(3), backend, max_episode_steps=5)
    pool.reset()
    steps = play(pool, 12)
    copies = [[field.copy() for field in step] for step in steps]
    play(pool, 20, seed=1)
    for step, copy in zip(steps, copies, strict=True):
        for field, before in zip(step, copy, strict=True):
            np.testing.assert_array_equal(field, before)


def test_environments_that_keep_or_change_their_action_do_no_harm() -> None:
    class Rude(PendulumEnv):
        def step(self, action: Any) -> Any:
            parent: Any = super()
            step = parent.step(action)
            action *= 0.5
            self.kept = action
            return step

    pool: Any = make_pool(Rude, [0, 1])
    pool.reset()
    actions = np.full((2, 1), 0.5, np.float32)
    pool.step(actions)
    assert (actions == 0.5).all()
    actions[:] = 0
    assert [env.kept.item() for env in pool.envs] == [0.25, 0.25]
    state = pool.state()
    pool.restore(state)
    np.testing.assert_array_equal(pool.restore(pool.state()), state["obs"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env", ["Pendulum", "Hopper", "LunarLander"])
def test_an_agent_depends_on_its_own_seed_alone(env: str, backend: str) -> None:
    seeds = [178132, 5, 6, 4, 787576]
    together, other = (
        make_pool(env, seeds, backend, max_episode_steps=9),
        make_pool(env, seeds, backend, max_episode_steps=9),
    )
    starts = together.reset()
    np.testing.assert_array_equal(starts, other.reset())
    assert len({row.tobytes() for row in starts}) == len(seeds)
    steps = play(together, 25)
    for j, seed in enumerate(seeds):
        alone = make_pool(env, [seed], backend, max_episode_steps=9)
        np.testing.assert_array_equal(alone.reset()[0], starts[j])
        rng = np.random.default_rng([0, j])
        for step in steps:
            one = alone.step(rng.uniform(alone.spec.low, alone.spec.high)[None])
            for field, row in zip(one, step, strict=True):
                np.testing.assert_array_equal(field[0], row[j])


@pytest.mark.parametrize("backend", BACKENDS)
def test_neighbouring_seeds_share_no_start(backend: str) -> None:
    pool = make_pool("Pendulum", range(50), backend, max_episode_steps=1)
    starts = [pool.reset(), *(step.obs for step in play(pool, 40))]
    assert len({row.tobytes() for row in np.concatenate(starts)}) == 50 * 41


@pytest.mark.parametrize("backend", BACKENDS)
def test_reset_starts_over(backend: str) -> None:
    pool = make_pool("Pendulum", [3, 4], backend, max_episode_steps=5)
    first = pool.reset()
    before = play(pool, 12)
    np.testing.assert_array_equal(pool.reset(), first)
    np.testing.assert_array_equal(play(pool, 12)[-1].obs, before[-1].obs)


@pytest.mark.parametrize(
    ("env", "limit", "steps"),
    [
        ("Pendulum", 200, 350),
        ("LunarLander", 1000, 330),
        ("Reacher", 50, 77),
        ("Hopper", 1000, 120),
        ("Ant", 40, 95),
        ("Walker", 1000, 120),
        (Noisy, None, 400),
    ],
)
@pytest.mark.parametrize("first_episode", [True, False], ids=["first episode", "later"])
def test_gymnasium_resumes_bit_for_bit(
    env: Any, limit: int | None, steps: int, first_episode: bool
) -> None:
    kwargs: dict[str, Any] = {"max_episode_steps": limit} if limit else {}
    pool, resumed = make_pool(env, [1, 2], **kwargs), make_pool(env, [1, 2], **kwargs)
    pool.reset()
    played = play(pool, 3 if first_episode else steps)
    assert any((step.terminated | step.truncated).any() for step in played) != first_episode
    state = through_a_file(pool.state())
    np.testing.assert_array_equal(resumed.restore(state), played[-1].obs)
    assert resumed.exact_resume
    # Both go on alike, and through resets: the random states agree too.
    for one, other in zip(play(pool, 60, seed=1), play(resumed, 60, seed=1), strict=True):
        for field, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(field, same)
    np.testing.assert_array_equal(pool.state()["actions"], resumed.state()["actions"])


def test_numbers_count_as_vectors_of_one() -> None:
    spec = spec_of(Noisy)
    assert (spec.obs_dim, spec.act_dim, spec.max_episode_steps) == (1, 1, None)
    assert spec.low.shape == spec.obs_low.shape == (1,)


def test_a_state_is_a_snapshot_and_grows_with_the_episode() -> None:
    pool = make_pool("Pendulum", [1, 2], max_episode_steps=700)
    pool.reset()
    steps = play(pool, 600)  # beyond the first and second size of the log
    state = pool.state()
    assert state["actions"].shape == (600, 2, 1)
    play(pool, 150, seed=1)
    np.testing.assert_array_equal(pool.restore(state), steps[-1].obs)


def test_no_two_restores_start_alike() -> None:
    pool = make_pool("Pendulum-v1", [3, 5])
    first, second, again = (pool.start_afresh(restores).copy() for restores in (1, 2, 1))
    pool.close()
    assert (first != second).any(1).all() and np.array_equal(first, again)


def test_an_inexact_replay_is_refused() -> None:
    pool, resumed = make_pool(Diary, [1, 2]), make_pool(Diary, [1, 2])
    pool.reset()
    play(pool, 20)
    with pytest.raises(
        InexactReplayError, match="'Diary' must draw all its randomness from np_random"
    ):
        resumed.restore(pool.state())  # the diary counts its episodes on, whatever the seed


def test_statistics_that_are_lost_are_no_reason_for_fresh_episodes() -> None:
    def normalised() -> Any:
        return gymnasium.wrappers.NormalizeObservation(gymnasium.make("Pendulum-v1"))

    pool, resumed = make_pool(normalised, [1, 2]), make_pool(normalised, [1, 2])
    pool.reset()
    for _ in range(210):
        pool.step(np.zeros((2, 1)))
    with pytest.raises(
        DamperError, match="its NormalizeObservation learns statistics: leave it out; norm_obs"
    ) as refused:
        resumed.restore(pool.state())
    assert not isinstance(refused.value, InexactReplayError)


class GymReset(PendulumEnv):
    """Gym's older API: the observation alone, whose first number would fill the row."""

    def reset(self, **options: Any) -> Any:
        return super().reset(**options)[0]


class GymStep(PendulumEnv):
    """Gym's older API: one flag for both ends of an episode."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class ShortObs(PendulumEnv):
    """Fewer numbers than its space says, which broadcasting would repeat."""

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return obs[:1], *rest


class ArrayReward(PendulumEnv):
    """A reward as an array of one number."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, np.array([reward]), *rest


class NoReward(PendulumEnv):
    """None, which an array of numbers takes for NaN."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, None, *rest


class ArrayEnd(PendulumEnv):
    """An end as an array of one flag."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, *rest = super().step(action)
        return obs, reward, np.array([terminated]), *rest


class Unseeded(PendulumEnv):
    """Gym's older API: no seed."""

    def reset(self) -> Any:
        return super().reset()


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (
            GymReset,
            r"must return \(obs, info\) from reset, .*, but returned a ndarray: "
            r"this is Gymnasium's API",
        ),
        (
            GymStep,
            r"must return \(obs, reward, terminated, .* from step, .*, but returned 4 values",
        ),
        (ShortObs, r"with obs of shape \(3,\), but returned 5 values, obs of shape \(1,\)"),
        (
            ArrayReward,
            r"must return one number as reward from step, but returned array\(\[-.*, "
            r"return reward.item\(\)",
        ),
        (NoReward, r"must return one number as reward from step, but returned None"),
        (
            ArrayEnd,
            r"must return one number as terminated from step, but returned array\(\[False\]\): ",
        ),
        (Unseeded, r"must accept reset\(seed=...\), .*, but its reset takes no seed"),
    ],
)
def test_what_is_no_gymnasium_environment_is_refused_at_its_first_step(env: Any, told: str) -> None:
    with pytest.raises(DamperError, match=told):  # noqa: PT012
        pool = make_pool(env, [0, 1])
        pool.reset()
        pool.step(np.zeros((2, 1)))
