"""What the tasks look like, and which sentence each mistake gets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from damper.engine.envs import make_pool, spec_of
from damper.engine.envs.pool import action_scale, unscale_action
from damper.errors import DamperError
from damper.tasks import TASKS

needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="envpool is not installed")
BACKENDS = ["gymnasium", pytest.param("envpool", marks=needs_envpool)]
BOX = Box(-1.0, 1.0, (2,))


class Blank(gymnasium.Env[Any, Any]):
    """It only has spaces."""

    observation_space = action_space = BOX


def with_spaces(obs: Any, act: Any) -> Callable[[], Blank]:
    def make() -> Blank:
        env = Blank()
        env.observation_space, env.action_space = obs, act
        return env

    return make


# observation, action, time limit
SIZES = {
    "LunarLander": (8, 2, 1000),
    "Pendulum": (3, 1, 200),
    "Reacher": (10, 2, 50),
    "Ant": (105, 8, 1000),
    "Hopper": (11, 3, 1000),
    "Walker": (17, 6, 1000),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TASKS)
def test_tasks_have_the_dimensions_of_the_protocol(name: str, backend: str) -> None:
    spec = spec_of(name, backend)
    assert spec.id == TASKS[name].gymnasium_id
    assert (spec.obs_dim, spec.act_dim, spec.max_episode_steps) == SIZES[name]
    assert spec.period == pytest.approx(TASKS[name].period)
    assert (spec.high == (2 if name == "Pendulum" else 1)).all() and (spec.low == -spec.high).all()
    assert (spec.obs_low <= 0).all() and (spec.obs_high > 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["LunarLander", "LunarLander-v3", "LunarLanderContinuous-v3"])
def test_lunar_lander_is_continuous_by_every_name(name: str, backend: str) -> None:
    assert spec_of(name, backend).act_dim == spec_of(name, backend, continuous=True).act_dim == 2


def test_spec_of_a_callable() -> None:
    spec = spec_of(lambda: gymnasium.wrappers.TimeLimit(Blank(), 12))
    assert (spec.id, spec.max_episode_steps, spec.period) == ("Blank", 12, None)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Hoper-v5", "got 'Hoper-v5'; did you mean 'Hopper-v5'"),
        ("hopper", "got 'hopper'; did you mean 'Hopper'"),
        ("Hopper-v99", "got 'Hopper-v99'; did you mean 'Hopper-v"),
        ("zzzzzz", "got 'zzzzzz'; choose one of LunarLander, Pendulum"),
        (
            "Arm-v0",
            "got 'Arm-v0'; .* For your own environment, name the module that registers it: "
            "my_module:Arm-v0",
        ),
        ("json:Arm-v0", "env must be an id that Gymnasium has registered, got 'json:Arm-v0'; "),
        (
            "no_module:Env-v0",
            "no module named 'no_module' was found: install it, run this in its folder, or add "
            "that folder to",
        ),
        ("", "env must be an id that Gymnasium has registered, got ''"),
        ("Pendulum v1", "got 'Pendulum v1'; did you mean 'Pendulum-v1'"),
        (5, "env must be an id, or a callable that returns a new gymnasium.Env, but 5 was given"),
        (Blank(), "but a Blank was given: pass its class, or a function that makes it"),
        (
            lambda: 3,
            "env must be an id, or a callable that returns a new gymnasium.Env, but <function",
        ),
        (
            "CartPole-v1",
            r"'CartPole-v1' must have a continuous Box action of shape \(n,\), got Discrete\(2\)",
        ),
        (with_spaces(BOX, Discrete(3)), "must have a continuous Box action"),
        (with_spaces(BOX, Box(0, 3, (2,), np.int32)), "must have a continuous Box action"),
        (
            with_spaces(BOX, Box(-np.inf, 1, (2,))),
            "must have a bounded action space.*with gymnasium.wrappers.TransformAction",
        ),
        (
            with_spaces(BOX, Box(-1, 1, (2, 1))),
            r"action of shape \(n,\), got Box.*; flatten it, for instance with",
        ),
        (
            with_spaces(BOX, Box(np.array([-1, 0.5], np.float32), np.array([1, 0.5], np.float32))),
            r"must have an action space with low < high, got Box.* at \[1\]; leave",
        ),
        (
            with_spaces(Dict(a=BOX), BOX),
            r"Box observation of shape \(n,\), got Dict.*FlattenObservation",
        ),
        (
            with_spaces(Box(0, 255, (8, 8, 3), np.uint8), BOX),
            r"Box observation of shape \(n,\), got Box",
        ),
    ],
)
def test_unusable_environments_are_explained(env: Any, message: str) -> None:
    with pytest.raises(DamperError, match=message):
        make_pool(env, [0])


@needs_envpool
@pytest.mark.parametrize(
    ("env", "kwargs", "message"),
    [
        (Blank, {}, "a name or id for backend='envpool'.*use backend='gymnasium'"),
        ("Hoper-v5", {}, "EnvPool has registered, got 'Hoper-v5'; did you mean 'Hopper-v5'"),
        ("CartPole-v1", {}, "must have a continuous Box action"),
        (
            "Pendulum",
            {"gravity": 1.0},
            "env_kwargs must be EnvPool settings of 'Pendulum'.*gravity",
        ),
        ("Pendulum", {"threads": 0}, "threads must be at least 1, got 0"),
    ],
)
def test_unusable_envpool_environments_are_explained(
    env: Any, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(DamperError, match=message):
        make_pool(env, [0], "envpool", **kwargs)


@pytest.mark.parametrize(
    ("module", "env", "backend", "extra"),
    [
        ("mujoco", "Hopper", "gymnasium", "mujoco"),
        ("imageio", "Reacher", "gymnasium", "mujoco"),
        ("Box2D", "LunarLander", "gymnasium", "box2d"),
        ("envpool", "Pendulum", "envpool", "envpool"),
    ],
)
def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, env: str, backend: str, extra: str
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.startswith(("gymnasium.envs.mujoco", "gymnasium.envs.box2d"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DamperError, match=rf'pip install "damper-rl\[{extra}\]"'):
        make_pool(env, [0], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seeds", [[], [-1], [1.5], [2**70]])
def test_bad_seeds_are_refused(seeds: Any, backend: str) -> None:
    with pytest.raises(DamperError, match="seeds must be one whole number from 0 to"):
        make_pool("Pendulum", seeds, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_actions_are_refused(backend: str) -> None:
    pool = make_pool("Pendulum", [0, 1], backend)
    with pytest.raises(DamperError, match="must be reset before its first step"):
        pool.step(np.zeros((2, 1)))
    pool.reset()
    with pytest.raises(DamperError, match=r"actions must have shape \(2, 1\).*got \(3, 1\)"):
        pool.step(np.zeros((3, 1)))
    with pytest.raises(DamperError, match=r"actions must be finite, got \[nan\] for agent 1"):
        pool.step(np.array([[0.0], [np.nan]]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_foreign_state_is_refused(backend: str) -> None:
    pool, other = make_pool("Pendulum", [1, 2], backend), make_pool("Pendulum", [1, 3], backend)
    pool.reset()
    with pytest.raises(DamperError, match=r"state must come from .*\[1, 3\].*got .*\[1, 2\]"):
        other.restore(pool.state())


def test_actions_are_stretched_by_the_action_scale() -> None:
    low, high = np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)
    one, other = (
        unscale_action(np.array(action, np.float32), low, high)
        for action in ([-0.5, 0.5], [0.5, 0.5])
    )
    assert (
        action_scale(low, high).tolist() == [2.0, 0.5]
        and action_scale(low, high).dtype == np.float32
    )
    assert (
        np.abs(other - one).tolist() == [2.0, 0.0]
        and unscale_action(1.0, low, high).tolist() == high.tolist()
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("bounds", [(0.19, 1.4), (-0.1, 0.1), (0.0, 0.3), (-1.88, -0.19)])
def test_no_action_lies_beyond_the_bounds(bounds: tuple[float, float], dtype: Any) -> None:
    low, high = (np.array([bound], dtype) for bound in bounds)
    space = Box(low, high, dtype=dtype)
    spec = spec_of(with_spaces(BOX, space))
    for action in np.linspace(-1.0, 1.0, 101, dtype=np.float32)[:, None]:
        assert space.contains(unscale_action(action, spec.low, spec.high).astype(dtype))
        given = (torch.tensor(numbers) for numbers in (action, spec.low, spec.high))
        assert space.contains(unscale_action(*given).numpy().astype(dtype))


def test_other_mistakes_are_explained() -> None:
    with pytest.raises(DamperError, match="backend must be 'gymnasium' or 'envpool', got 'jax'"):
        make_pool("Pendulum", [0], "jax")
    with pytest.raises(DamperError, match=r"env_kwargs must be arguments of 'Pendulum'.*gravity"):
        make_pool("Pendulum", [0], gravity=1.0)
    shared = Blank()
    with pytest.raises(DamperError, match="env must make a new environment at each call"):
        make_pool(lambda: shared, [0, 1])
