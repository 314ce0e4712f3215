"""One half of a population whose environments step in two halves: it acts while the other half's environments step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.engine.envs.envpool_pool import EnvPoolPool
from damper.engine.loop.acting import Acting


class Half:
    """The agents and environments of one half, which take turns."""

    def __init__(self, acting: Acting, pool: EnvPoolPool, obs: NDArray[np.float32]) -> None:
        """``obs`` are the observations of this half's agents to act on first."""
        self.pool, self.obs, self._acting = pool, obs, acting

    def start(self) -> None:
        """Begin to act."""
        self._acting.start(self.obs)

    def send(self) -> None:
        """Let the environments step."""
        sent, self._action, self._mean = self._acting.actions()
        self.pool.send(sent)

    def receive(self) -> tuple[NDArray[Any], ...]:
        """Observations, actions, mean actions and what the environments did with them."""
        transition = self.pool.receive()
        made = (self.obs, self._action, self._mean, *transition)
        self.obs = transition.obs
        return made
