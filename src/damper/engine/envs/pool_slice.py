"""A trainer's slice of a pool of environments that it shares with other trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.engine.envs.envpool_pool import EnvPoolPool, seed_again
from damper.engine.envs.spec import Spec, check_state
from damper.errors import DamperError


class PoolSlice:
    """One trainer's environments among those of a shared pool, which is made when every slice knows its seeds."""

    backend, exact_resume = EnvPoolPool.backend, EnvPoolPool.exact_resume

    def __init__(self, spec: Spec, seeds: Sequence[int]) -> None:
        """Fresh episodes from the seeds, unless ``restore`` is called."""
        self.spec, self.seeds, self.size = spec, list(seeds), len(seeds)
        self.start_seeds, self.restores, self.resumed_fresh = list(seeds), 0, False

    def reset(self) -> NDArray[np.float32]:
        """Zeros: the shared pool will give the first observations."""
        return np.zeros((self.size, self.spec.obs_dim), np.float32)

    def restore(self, state: Mapping[str, Any]) -> NDArray[np.float32]:
        """Start fresh episodes, as EnvPool's pool alone would."""
        check_state(state, self.backend, self.spec.id, self.seeds)
        self.restores, self.resumed_fresh = int(state["restores"]) + 1, True
        self.start_seeds = [seed_again(seed, self.restores) for seed in self.seeds]
        return self.reset()

    def state(self) -> dict[str, Any]:
        """As EnvPool's."""
        return {"backend": self.backend, "env": self.spec.id, "seeds": self.seeds, "restores": self.restores}

    def step(self, *actions: NDArray[Any]) -> Any:
        """Never by itself."""
        raise DamperError("environments that are shared are stepped for everyone at once.")

    send = receive = step

    def close(self) -> None:
        """The shared pool is closed by whoever made it."""
