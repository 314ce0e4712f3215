"""A pool of EnvPool environments (C++ threads): fast, but resumed with new episodes."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from damper.engine.device.cores import usable_cores
from damper.engine.envs.env_spec_json import env_spec_from_id, same_task
from damper.engine.envs.pool import INT32_MAX, Floats, Pool, Spec, Transition, raise_unknown
from damper.errors import DamperError, MissingExtraError
from damper.tasks import Task, find_task


def read_spec(env: object, **env_kwargs: Any) -> Spec:
    """The spec of an EnvPool environment, read without starting a thread."""
    task, settings = _find(env, env_kwargs)
    try:
        described = _import_envpool().make_spec(**settings)
    except TypeError as error:
        raise DamperError(
            f"env_kwargs must be EnvPool settings of {env!r}, got {env_kwargs}: {error}"
        ) from error
    env_spec, limit = env_spec_from_id(task.gymnasium_id), described.config.max_episode_steps
    spec = Spec.of_spaces(env_spec, *_spaces(described), limit, task.period)
    # EnvPool 1.2.5 reports unknown bounds as C++'s smallest positive and largest float.
    float32 = np.finfo(np.float32)
    unknown = (spec.obs_low == float32.tiny) & (spec.obs_high == float32.max)
    spec.obs_low[unknown], spec.obs_high[unknown] = -np.inf, np.inf
    return spec


def _spaces(described: Any) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        # EnvPool builds float32 boxes from float64 bounds; the rounding does not matter.
        warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
        return described.observation_space, described.action_space


def _find(env: object, env_kwargs: Mapping[str, Any]) -> tuple[Task, dict[str, Any]]:
    """The task and its EnvPool settings."""
    if isinstance(env, EnvSpec):
        if not same_task(env, env_spec_from_id(env.id)):
            raise DamperError(
                f"env must be exactly as registered for backend='envpool', but {env.id} was made "
                "with other arguments, another time limit or wrappers; use backend='gymnasium'."
            )
        env = env.id
    if not isinstance(env, str):
        raise DamperError(
            f"env must be a name or id for backend='envpool', got {env!r}; use backend='gymnasium' "
            "for your own class."
        )
    task, known = find_task(env), _import_envpool().list_all_envs()
    if task.envpool_id not in known:
        raise_unknown(env, known, "EnvPool")
    # EnvPool's ids imply the task's own arguments.
    more = dict(pair for pair in env_kwargs.items() if pair not in task.kwargs.items())
    return task, {"task_id": task.envpool_id, **more}


def _import_envpool() -> Any:
    try:
        import envpool
    except ImportError as error:
        raise MissingExtraError(
            f"backend='envpool' needs a package that is missing ({error}); "
            'pip install "damper-rl[envpool]" installs it, or use backend="gymnasium".'
        ) from error
    return envpool


class EnvPoolPool(Pool):
    """Environments in lockstep; one whose episode ended is reset explicitly right after the step.

    EnvPool therefore never does its own reset, a step that ignores the action and is no transition.
    Nor does it reach its own time limit, which is set one step later than the task's: at the limit
    it would report a fall as a time-out.
    """

    backend = "envpool"
    exact_resume = False

    def __init__(
        self, env: object, seeds: Sequence[int], threads: int | None = None, **env_kwargs: Any
    ) -> None:
        super().__init__(seeds, INT32_MAX)
        if threads is not None and threads < 1:
            raise DamperError(f"threads must be at least 1, got {threads}; leave it out.")
        self.spec = read_spec(env, **env_kwargs)
        self._limit = self.spec.max_episode_steps or INT32_MAX
        self._settings = {
            **_find(env, env_kwargs)[1],
            "num_envs": self.size,
            "num_threads": min(threads or usable_cores(), self.size),
            "max_episode_steps": min(self._limit + 1, INT32_MAX),
        }
        self._restores = 0
        self._pool = self._make(self.seeds)

    def _make(self, seeds: list[int]) -> Any:
        pool = _import_envpool().make_gymnasium(**self._settings, seed=seeds)
        self._act_dtype = _spaces(pool)[1].dtype
        self._ids = np.arange(self.size, dtype=np.int32)
        keys = list(pool._state_keys)
        observed = next(key for key in keys if key.split(":")[0] == "obs")
        read = (observed, "reward", "done", "trunc", "elapsed_step", "info:env_id")
        self._read = operator.itemgetter(*(keys.index(key) for key in read))
        return pool

    def reset(self) -> Floats:
        """Start every environment's first episode from its own seed."""
        if self._sent is not None:  # EnvPool's seeds are fixed when a pool is made
            self._restart(self.seeds)
        self._restores = 0
        return self._begin()

    def _restart(self, seeds: list[int]) -> None:
        self._pool.close()
        self._pool = self._make(seeds)

    def _begin(self) -> Floats:
        self._sent = False
        self._pool._reset(self._ids)
        return self._as_obs(self._read(self._pool._recv())[0])

    # EnvPool's own ``step`` spends as long in Python as a simulator in C++, because it looks up
    # ids, names and settings at every call. So we call its lowest level, whose order of fields is
    # read when the pool is made.

    def send(self, actions: NDArray[Any]) -> None:
        """Start a step of every environment in EnvPool's threads."""
        actions = self._check_actions(actions, self._act_dtype)
        self._pool._send([self._ids, self._ids, actions])
        self._sent = True

    def receive(self) -> Transition:
        """Wait for the step that was sent, and start a new episode where one ended."""
        self._check_turn(receiving=True)
        raw, reward, done, trunc, elapsed, _ = self._read(self._pool._recv())
        terminated, truncated = done & ~trunc, elapsed >= self._limit
        ended = np.flatnonzero(terminated | truncated)
        if ended.size:
            self._pool._reset(ended.astype(np.int32))
        obs = next_obs = self._as_obs(raw)
        reward = np.array(reward, np.float32)
        if ended.size:
            first, *_, ids = self._read(self._pool._recv())
            obs = next_obs.copy()
            obs[ids] = self._as_obs(first)
        self._sent = False
        return Transition(next_obs, reward, terminated, truncated, obs)

    def _as_obs(self, raw: NDArray[Any]) -> Floats:
        return np.array(raw, np.float32).reshape(len(raw), self.spec.obs_dim)

    def state(self) -> dict[str, Any]:
        """How often the run was resumed; EnvPool does not expose the state of its environments."""
        return {**super().state(), "restores": self._restores}

    def restore(self, state: Mapping[str, Any]) -> Floats:
        """Start fresh episodes."""
        self._check_state(state)
        return self.start_afresh(int(state["restores"]) + 1)

    def start_afresh(self, restores: int) -> Floats:
        """Start new episodes from new seeds."""
        self._restores = restores
        self._restart(self._new_seeds(restores))
        return self._begin()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()
