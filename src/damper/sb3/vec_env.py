"""EnvPool's environments as Stable-Baselines3's VecEnv."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from damper.engine.envs.envpool_pool import EnvPoolPool, read_spec
from damper.engine.envs.pool import INT32_MAX


class EnvPoolVecEnv(VecEnv):
    """``n_envs`` environments of EnvPool, stepped together, as a VecEnv of Stable-Baselines3.

    Where an episode ends, the observation is the first of the next, and ``infos`` hold
    ``terminal_observation`` and ``TimeLimit.truncated``. ``seed``, which a model calls with its
    own, sets the seeds; otherwise they are drawn.

    Args:
        env: one of EnvPool's ids, such as "Hopper-v5".
        n_envs: number of environments.
        threads: number of EnvPool's threads; EnvPool's choice if None.
        **env_kwargs: EnvPool's settings of that environment.

    Example:
        >>> from stable_baselines3.common.vec_env import VecMonitor
        >>> from damper.sb3 import PPO
        >>> env = VecMonitor(EnvPoolVecEnv("Pendulum-v1", 2))
        >>> model = PPO("MlpPolicy", env, n_steps=32).learn(64)
    """

    def __init__(
        self, env: str, n_envs: int = 1, threads: int | None = None, **env_kwargs: Any
    ) -> None:
        spec = read_spec(env, **env_kwargs)
        self._make = partial(EnvPoolPool, env, threads=threads, **env_kwargs)
        self._pool: EnvPoolPool | None = None
        self._shared = {"spec": spec.env_spec, "render_mode": None}  # of every environment
        seen = gymnasium.spaces.Box(spec.obs_low, spec.obs_high, dtype=np.float32)
        acted = gymnasium.spaces.Box(spec.low, spec.high, dtype=np.float32)
        super().__init__(n_envs, seen, acted)

    def reset(self) -> NDArray[np.float32]:
        """Start new episodes, from the seeds given since the last call or from new ones."""
        pool, seeds = self._pool, self._seeds
        self._reset_seeds()
        self._reset_options()
        if pool is not None and seeds[0] is None:
            return pool.restore(pool.state())  # EnvPool cannot be seeded again
        self.close()
        drawn = np.random.SeedSequence().generate_state(self.num_envs) & INT32_MAX
        pairs = zip(seeds, drawn, strict=True)
        chosen = [int(new if given is None else given) for given, new in pairs]
        self._pool = self._make(seeds=chosen)
        return self._pool.reset()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Send the actions, on which EnvPool's threads start to step."""
        assert self._pool is not None, "reset comes before the first step"
        self._pool.send(actions)

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations to act on, rewards, ends of episodes, infos."""
        assert self._pool is not None, "reset comes before the first step"
        step = self._pool.receive()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        done = step.terminated | step.truncated
        for i in np.flatnonzero(done):
            out_of_time = bool(step.truncated[i] and not step.terminated[i])
            infos[i] = {
                "terminal_observation": step.next_obs[i],
                "TimeLimit.truncated": out_of_time,
            }
        return step.obs, step.reward, done, infos

    def close(self) -> None:
        """Stop EnvPool's threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """``spec`` or ``render_mode``, the same for every environment."""
        if attr_name not in self._shared:
            raise AttributeError(f"EnvPool's environments have no attribute {attr_name!r}")
        return [self._shared[attr_name] for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise: EnvPool's environments are not Python objects."""
        raise AttributeError(f"{attr_name!r} of EnvPool's environments cannot be set")

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Raise: EnvPool's environments are not Python objects."""
        raise AttributeError(f"EnvPool's environments have no method {method_name!r}")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """False for every environment: EnvPool's have no Python wrappers."""
        return [False for _ in self._get_indices(indices)]
