"""An environment whose observations tell a true pair of states from a false one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Diary(gymnasium.Env[Any, Any]):
    """Observes (seed, episode, t, length, whether it ends in a fall); rewards the action.

    Episodes last 1 to 8 steps and end by falling or by running out of time, at other times for
    other seeds.
    """

    observation_space = Box(-np.inf, np.inf, (5,))
    action_space = Box(-1.0, 1.0, (1,))
    tag, episode, t, length, falls = -1, 0, 0, 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.tag = self.tag if seed is None else seed
        self.episode, self.t = self.episode + 1, 0
        self.length, self.falls = (
            int(self.np_random.integers(1, 9)),
            bool(self.np_random.integers(2)),
        )
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        ended = self.t == self.length
        return (
            self._look(),
            self._reward(float(action[0])),
            ended and self.falls,
            ended and not self.falls,
            {},
        )

    def _reward(self, action: float) -> float:
        return action

    def _look(self) -> Any:
        return np.array([self.tag, self.episode, self.t, self.length, self.falls], np.float32)


class Poisoned(Diary):
    """The same, but seed 1 is once given a reward that is no number."""

    def _reward(self, action: float) -> float:
        return float("nan") if (self.tag, self.episode, self.t) == (1, 40, 1) else action
