"""Training episodes as they end: return, length, and how smooth the policy's own actions were along them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from damper.metrics import mean_change, smoothness


class Episode(NamedTuple):
    """One finished training episode; ``sm`` and ``change`` are of the deterministic actions, without exploration."""

    agent: int
    total: float
    length: int
    sm: float
    change: float


class Episodes:
    """Running sums and traces of P agents' current episodes."""

    def __init__(self, agents: int, low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
        """Traces grow by doubling."""
        self.low, self.high = low, high
        self.totals, self.lengths = np.zeros(agents), np.zeros(agents, np.int64)
        self.traces = np.zeros((agents, 256, low.size), np.float32)

    @property
    def first(self) -> NDArray[np.bool_]:
        """Which agents stand at their episode's first step."""
        first: NDArray[np.bool_] = self.lengths == 0
        return first

    def step(
        self, mean_actions: NDArray[np.float32], reward: NDArray[np.float32], ended: NDArray[np.bool_]
    ) -> list[Episode]:
        """Take one step into account; returns the episodes that it ended."""
        if self.lengths.max() == self.traces.shape[1]:
            self.traces = np.concatenate((self.traces, np.zeros_like(self.traces)), 1)
        self.traces[np.arange(len(self.lengths)), self.lengths] = mean_actions
        self.totals += reward
        self.lengths += 1
        finished = [self._finish(int(agent)) for agent in np.flatnonzero(ended)]
        self.totals[ended] = 0.0
        self.lengths[ended] = 0
        return finished

    def _finish(self, agent: int) -> Episode:
        length = int(self.lengths[agent])
        means = self.traces[agent, :length]  # in [-1, 1], a range of two
        sent = self.low + (means + 1.0) * 0.5 * (self.high - self.low)
        return Episode(agent, float(self.totals[agent]), length, smoothness(sent), mean_change(means) / 2.0)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        longest = max(int(self.lengths.max()), 1)
        return {"totals": self.totals.copy(), "lengths": self.lengths.copy(), "traces": self.traces[:, :longest].copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self.totals, self.lengths = np.array(state["totals"]), np.array(state["lengths"])
        longest = state["traces"].shape[1]
        self.traces = np.zeros((len(self.totals), max(256, longest), self.traces.shape[2]), np.float32)
        self.traces[:, :longest] = state["traces"]
