"""EnvPool's environments: true transitions at its time limit and its resets."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from damper.engine.envs import envpool_pool, make_pool
from damper.engine.envs.envpool_pool import EnvPoolPool
from tests.engine.pools import play, random_actions, through_a_file

envpool = pytest.importorskip("envpool")


def test_hopper_s_pairs_are_what_the_simulator_makes() -> None:
    pytest.importorskip("mujoco")
    pool = make_pool("Hopper", range(40), "envpool", threads=2, max_episode_steps=60)
    simulator: Any = gymnasium.make("Hopper-v5").unwrapped
    simulator.reset(seed=0)
    rng = np.random.default_rng(0)
    s, falls, timeouts, checked = pool.reset(), 0, 0, 0
    for _ in range(250):
        actions = random_actions(pool, rng)
        next_obs, _, terminated, truncated, obs = pool.step(actions)
        for j in np.flatnonzero(
            (abs(s[:, 5:]) < 9.99).all(axis=1)
        ):  # observed speeds are clipped at 10
            simulator.set_state(np.append(0, s[j, :5]), s[j, 5:])
            made, _, fell, _, _ = simulator.step(actions[j])
            np.testing.assert_allclose(next_obs[j], made, atol=1e-4)
            assert fell == terminated[j]
            checked += 1
        ended = terminated | truncated
        assert (abs(obs[ended, 5:]) <= 0.0051).all(), (
            "a new episode starts at rest, up to its noise"
        )
        np.testing.assert_array_equal(obs[~ended], next_obs[~ended])
        s, falls, timeouts = (
            obs,
            falls + terminated.sum(),
            timeouts + (truncated & ~terminated).sum(),
        )
    assert checked > 9_000 and falls > 200 and timeouts > 0


def test_a_fall_at_the_time_limit_is_still_a_fall() -> None:
    def first_end(limit: int) -> tuple[int, bool, bool]:
        pool = make_pool("Hopper", [1], "envpool", max_episode_steps=limit)
        pool.reset()
        for t, step in enumerate(play(pool, 300), start=1):
            if step.terminated[0] or step.truncated[0]:
                return t, bool(step.terminated[0]), bool(step.truncated[0])
        raise AssertionError("the hopper never fell")

    t, fell, late = first_end(1_000)
    assert fell and not late
    assert first_end(t) == (t, True, True)
    assert first_end(t - 1) == (t - 1, False, True)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
@pytest.mark.parametrize(
    ("name", "id"), [("Pendulum", "Pendulum-v1"), ("Hopper", "Hopper-v5"), ("Ant", "Ant-v5")]
)
def test_its_lowest_level_says_what_its_own_step_says(name: str, id: str) -> None:
    seeds = [3, 1, 4]
    ours, theirs = (
        make_pool(name, seeds, "envpool"),
        envpool.make_gymnasium(task_id=id, num_envs=3, seed=seeds),
    )
    np.testing.assert_array_equal(ours.reset(), theirs.reset()[0].astype(np.float32))
    ended = 0
    for actions in np.random.default_rng(0).uniform(-1, 1, (40, 3, ours.spec.act_dim)):
        ours.send(actions.astype(np.float32))
        mine = ours.receive()
        raw, reward, terminated, _, _ = theirs.step(
            actions.astype(np.float32).astype(theirs.action_space.dtype)
        )
        np.testing.assert_array_equal(mine.next_obs, raw.astype(np.float32))
        np.testing.assert_array_equal(mine.reward, reward)
        np.testing.assert_array_equal(mine.terminated, terminated)
        raw = raw.astype(np.float32)
        if terminated.any():
            ended += 1
            raw[terminated] = theirs.reset(np.flatnonzero(terminated))[0]
        np.testing.assert_array_equal(mine.obs, raw)
    assert (ended > 0) == (name == "Hopper")


def test_it_resumes_with_fresh_episodes_and_says_so() -> None:
    pool = make_pool("Pendulum", [1, 2], "envpool")
    assert not pool.exact_resume
    starts = [pool.reset()]
    for _ in range(3):
        play(pool, 10)
        resumed = make_pool("Pendulum", [1, 2], "envpool")
        starts.append(resumed.restore(through_a_file(pool.state())))
        np.testing.assert_array_equal(
            starts[-1], make_pool("Pendulum", [1, 2], "envpool").restore(pool.state())
        )
        pool = resumed
    assert len({row.tobytes() for row in np.concatenate(starts)}) == 8


def test_threads_are_as_many_as_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envpool_pool, "usable_cores", lambda: 2)
    pool = EnvPoolPool("Pendulum", range(3))
    pool.close()
    assert pool._settings["num_threads"] == 2
    monkeypatch.setattr(envpool_pool, "usable_cores", lambda: 16)
    pool = EnvPoolPool("Pendulum", range(3))
    pool.close()
    assert pool._settings["num_threads"] == 3, "more threads than environments would wait"
