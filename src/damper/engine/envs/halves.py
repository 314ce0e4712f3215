"""One population whose environments step in two halves: while one half's step, the other half's agents act.

So neither the simulator's threads nor this one wait for each other at every step. What is trained is what one pool of
all environments would train with ``overlap``, up to rounding: an environment depends on its own seed only, and both
halves of a step act with the same policies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.engine.envs import Pool, Transition, make_pool
from damper.engine.envs.envpool_pool import EnvPoolPool
from damper.engine.envs.spec import check_state
from damper.engine.settings import Settings
from damper.errors import DamperError


def all_threads(settings: Settings) -> int:
    """As many as were asked for, or one for each core that this process may use."""
    if settings.env_threads is not None:
        return settings.env_threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_threads(settings: Settings) -> tuple[int, int]:
    """For two pools that step at the same time, at least one each."""
    threads = all_threads(settings)
    return (threads + 1) // 2, max(1, threads // 2)


def fitting_pool(settings: Settings, seeds: Sequence[int]) -> Pool:
    """In halves where that pays: a GPU learns meanwhile, and there are more environments than threads."""
    on_gpu, crowded = settings.device.startswith("cuda"), len(seeds) > all_threads(settings)
    if settings.overlap and settings.backend == Halves.backend and on_gpu and crowded:
        return Halves(settings, seeds)
    return make_pool(settings.env, seeds, settings.backend, settings.env_threads, **(settings.env_kwargs or {}))


class Halves:
    """Two of EnvPool's pools, which can be stepped apart or as one."""

    backend, exact_resume = EnvPoolPool.backend, EnvPoolPool.exact_resume

    def __init__(self, settings: Settings, seeds: Sequence[int]) -> None:
        """At least two seeds."""
        if len(seeds) < 2:
            raise DamperError(
                f"seeds must be at least two to step in halves, but {list(seeds)} was given: use one pool."
            )
        self.seeds, self.size, self.resumed_fresh = list(seeds), len(seeds), False
        middle = (self.size + 1) // 2
        self.places = slice(0, middle), slice(middle, self.size)
        shares = zip(self.places, shared_threads(settings), strict=True)
        self.pools: list[EnvPoolPool] = []
        with ExitStack() as failing:
            failing.callback(self.close)
            for place, threads in shares:
                self.pools.append(EnvPoolPool(settings.env, self.seeds[place], threads))
            failing.pop_all()
        self.spec = self.pools[0].spec

    def reset(self) -> NDArray[np.float32]:
        """See ``Pool``."""
        self.resumed_fresh = False
        return np.concatenate([pool.reset() for pool in self.pools])

    def step(self, actions: NDArray[Any]) -> Transition:
        """See ``Pool``."""
        self.send(actions)
        return self.receive()

    def send(self, actions: NDArray[Any]) -> None:
        """See ``Pool``."""
        for pool, place in zip(self.pools, self.places, strict=True):
            pool.send(actions[place])

    def receive(self) -> Transition:
        """See ``Pool``."""
        return Transition(*joined([pool.receive() for pool in self.pools]))

    def state(self) -> dict[str, Any]:
        """As one pool's."""
        return {**self.pools[0].state(), "seeds": self.seeds}

    def restore(self, state: Mapping[str, Any]) -> NDArray[np.float32]:
        """As one pool's."""
        check_state(state, self.backend, self.spec.id, self.seeds)
        self.resumed_fresh = True
        return np.concatenate([pool.restore({**state, "seeds": pool.seeds}) for pool in self.pools])

    def close(self) -> None:
        """Stop all threads."""
        for pool in self.pools:
            pool.close()


def joined(halves: Sequence[Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Two halves' arrays as those of all agents."""
    return [np.concatenate(parts) for parts in zip(*halves, strict=True)]
