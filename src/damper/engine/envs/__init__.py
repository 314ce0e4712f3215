"""Environments of a population, stepped together: ``make_pool``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from damper.engine.envs import envpool_pool, gymnasium_pool
from damper.engine.envs.env_spec_json import EnvLike, env_spec_from_id
from damper.engine.envs.envpool_pool import EnvPoolPool
from damper.engine.envs.gymnasium_pool import GymnasiumPool
from damper.engine.envs.pool import Pool, Spec, Transition
from damper.errors import DamperError

__all__ = ["EnvLike", "Pool", "Spec", "Transition", "env_spec_from_id", "make_pool", "spec_of"]


def make_pool(
    env: EnvLike,
    seeds: Sequence[int],
    backend: str = "gymnasium",
    threads: int | None = None,
    **env_kwargs: Any,
) -> Pool:
    """Make one environment per seed, all stepped together.

    ``env`` is a task of ``TASKS``, a registered id, an ``EnvSpec``, or (Gymnasium only) a callable
    that makes an environment; ``threads`` is for EnvPool. Environment j depends only on its own
    seed, not on the pool's size or on its neighbours.
    """
    if _checked(backend) == "envpool":
        return EnvPoolPool(env, seeds, threads, **env_kwargs)
    return GymnasiumPool(env, seeds, **env_kwargs)


def spec_of(env: EnvLike, backend: str = "gymnasium", **env_kwargs: Any) -> Spec:
    """Spaces, time limit and control period of ``env``, without making a pool."""
    if _checked(backend) == "envpool":
        return envpool_pool.read_spec(env, **env_kwargs)
    one = gymnasium_pool.make_env(env, **env_kwargs)
    try:
        return gymnasium_pool.read_spec(one, env)
    finally:
        one.close()


def _checked(backend: str) -> str:
    if backend not in ("gymnasium", "envpool"):
        raise DamperError(
            f"backend must be 'gymnasium' or 'envpool', got {backend!r}; 'gymnasium' is always "
            "available, 'envpool' is faster for many environments."
        )
    return backend
