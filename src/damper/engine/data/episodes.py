"""Statistics of training episodes: return, length, smoothness of deterministic actions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from damper.engine.envs.pool import Floats, unscale_action
from damper.metrics import mean_change, smoothness

INITIAL_STEPS = 256  # initial capacity in steps


class EpisodeStats(NamedTuple):
    """One finished training episode; ``sm`` and ``mean_change`` without exploration."""

    agent: int
    episode_return: float
    length: int
    sm: float
    mean_change: float


class EpisodeTracker:
    """Actions and rewards of P agents since the oldest of their current episodes began.

    All agents share one row per step, so that a step costs two copies for any P; only episodes that
    end are handled one by one.
    """

    def __init__(self, n_agents: int, low: Floats, high: Floats) -> None:
        self.low, self.high = low, high
        self._began, self._steps = np.zeros(n_agents, np.int64), 0
        self._actions = np.zeros((INITIAL_STEPS, n_agents, low.size), np.float32)
        self._rewards = np.zeros((INITIAL_STEPS, n_agents), np.float32)

    @property
    def first(self) -> NDArray[np.bool_]:
        """Which agents are at the first step of their episode, ``[P]``."""
        return self._began == self._steps

    @property
    def steps_since_an_end(self) -> int:
        """Steps since an episode of any agent last ended, or since the first began."""
        return self._steps - int(self._began.max())

    def step(
        self, deterministic_actions: Floats, reward: Floats, ended: NDArray[np.bool_]
    ) -> list[EpisodeStats]:
        """Record one step of all agents; return the episodes that ended with it."""
        if self._steps == len(self._actions):
            self.restore(self.state())
        self._actions[self._steps], self._rewards[self._steps] = deterministic_actions, reward
        self._steps += 1
        finished = [self._finish(int(agent)) for agent in np.flatnonzero(ended)]
        if finished:
            self._began[ended] = self._steps
        return finished

    def _finish(self, agent: int) -> EpisodeStats:
        steps = slice(int(self._began[agent]), self._steps)
        actions = self._actions[steps, agent]
        episode_return = float(self._rewards[steps, agent].sum(dtype=np.float64))
        sm = smoothness(unscale_action(actions, self.low, self.high))
        # As a share of the range, which is two: these actions are in [-1, 1].
        return EpisodeStats(agent, episode_return, len(actions), sm, mean_change(actions) / 2.0)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, without steps from before the oldest current episode."""
        oldest = int(self._began.min())
        return {
            "began": self._began - oldest,
            "means": self._actions[oldest : self._steps].copy(),
            "rewards": self._rewards[oldest : self._steps].copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``, with free capacity for at least as many steps again."""
        self._began, self._steps = np.array(state["began"]), len(state["means"])
        # Capacity at least doubles, so that copying stays a small share of the steps.
        more = max(INITIAL_STEPS, self._steps, len(self._actions) - self._steps)
        self._actions, self._rewards = (
            np.concatenate((kept, np.zeros((more, *kept.shape[1:]), np.float32)))
            for kept in (state["means"], state["rewards"])
        )
