"""Replay on the training device: a ring of packed rows, one per step, all agents side by side.

A row is ``(s, a, s', r, d, first)``, so that storing a step is one copy and a batch is one gather; the critic's input
``(s, a)`` lies in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from damper.engine.data.random_streams import Streams
from damper.engine.device.cuda_graph import WARM_UP
from damper.engine.device.transfers import Upload
from damper.interface import Batch


class Replay:
    """Transitions of P agents in lockstep; every stored ``(s, s')`` is a true step of its environment."""

    def __init__(
        self, capacity: int, n_agents: int, obs_dim: int, act_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocated once, at full size."""
        self.capacity, self.n_agents, self.obs_dim, self.act_dim = capacity, n_agents, obs_dim, act_dim
        self.rows = torch.zeros(capacity, n_agents, self.width(obs_dim, act_dim), device=device, dtype=dtype)
        # How many steps were ever stored: on the host for bookkeeping, on the device for sampling inside a graph.
        self.stored = 0
        self.stored_on_device = torch.zeros((), dtype=torch.int64, device=device)
        # What sampling draws from: the steps stored and, after `count_next_step`, the one under way.
        self.steps_counted = 0
        self.steps_for_sampling = torch.zeros_like(self.stored_on_device)
        self._agent = torch.arange(n_agents, device=device).unsqueeze(1)
        self._new, self._newest = Upload(self.rows.shape[1:], device, dtype), torch.zeros_like(self.rows[:1])
        self._store: Callable[[], None] = self._write

    @staticmethod
    def width(obs_dim: int, act_dim: int) -> int:
        """Numbers per transition."""
        return 2 * obs_dim + act_dim + 3

    @staticmethod
    def pack(
        obs: ArrayLike,
        action: ArrayLike,
        next_obs: ArrayLike,
        reward: ArrayLike,
        terminated: ArrayLike,
        first: ArrayLike,
    ) -> NDArray[Any]:
        """One step of all agents as rows ``[P, D]``; ``first`` marks an episode's first step."""
        wide, scalars = np.asarray(obs), (np.asarray(x)[:, None] for x in (reward, terminated, first))
        parts = (wide, np.asarray(action), np.asarray(next_obs), *scalars)
        # Six small arrays: NumPy joins them in a few microseconds, and this is done at every step.
        return np.concatenate(parts, -1, dtype=wide.dtype, casting="unsafe")

    def add(self, rows: ArrayLike) -> None:
        """Store one step of all agents, over the oldest one once full."""
        self._new.host_buffer()[...] = rows
        self._store()
        self._new.record_event()
        self.stored += 1
        self.steps_counted = self.stored

    def _write(self) -> None:
        """The device's part of ``add``: it reads device tensors only, so that a CUDA graph can capture it."""
        self._new.send(self._newest[0])
        self.rows.index_copy_(0, (self.stored_on_device % self.capacity).unsqueeze(0), self._newest)
        self.stored_on_device += 1
        self.steps_for_sampling.copy_(self.stored_on_device)

    def count_next_step(self) -> None:
        """Let sampling count the step under way before it is stored.

        Only for batches that do not hold it (``Learner.newest_sampled``): they are the same as after it is stored.
        """
        self.steps_counted = self.stored + 1
        torch.add(self.stored_on_device, 1, out=self.steps_for_sampling)

    def fill(self, stored: int) -> None:
        """Count ``stored`` steps whose rows were written directly."""
        self.stored = self.steps_counted = stored
        self.stored_on_device.fill_(stored)
        self.steps_for_sampling.fill_(stored)

    def capture(self, graphed: Callable[[Callable[[], None], Callable[[], Mapping[str, Tensor]]], Any]) -> None:
        """Let ``add`` replay a CUDA graph, made by ``graphed`` of a function and the tensors that it changes."""

        def changed() -> dict[str, Tensor]:
            count = min(WARM_UP, self.capacity)  # rows that capturing writes
            rows = {str(i): self.rows[(self.stored + i) % self.capacity] for i in range(count)}
            return {**rows, "stored": self.stored_on_device, "expected": self.steps_for_sampling}

        self._store = graphed(self._write, changed)

    def sample(self, streams: Streams, counter: Tensor | int, batch_size: int, previous_obs: bool = False) -> Batch:
        """A uniform batch per agent, ``[P, B, ·]``; runs inside a CUDA graph."""
        size = self.steps_for_sampling.clamp(max=self.capacity)
        return self.gather(streams.integers("replay", counter, (batch_size,), size), previous_obs)

    def gather(self, index: Tensor, previous_obs: bool = False) -> Batch:
        """The transitions at ring positions ``index`` ``[P, B]``."""
        rows = self._take(index)
        d, a = self.obs_dim, self.act_dim
        obs, action, next_obs, scalars = rows.split((d, a, d, 3), -1)
        reward, terminated, first = scalars.unbind(-1)
        before = None
        if previous_obs:
            # The oldest step's predecessor has been written over: it counts as an episode's first.
            oldest = (self.steps_for_sampling > self.capacity) & (index == self.steps_for_sampling % self.capacity)
            missing = (first > 0) | oldest
            before = torch.where(missing.unsqueeze(-1), obs, self._take((index - 1) % self.capacity)[..., :d])
        return Batch(obs, action, reward, next_obs, terminated, before)

    def not_finite(self, agent: int) -> list[str]:
        """Which of what an agent's environment gave and is still stored is not finite; waits for the device."""
        d, a = self.obs_dim, self.act_dim
        obs, _, next_obs, scalars = self.rows[: self.stored, agent].split((d, a, d, 3), -1)
        given = {"observations": (obs, next_obs), "rewards": (scalars[:, 0],)}
        # By sums, which are finite where all are: float64 does not overflow, and nothing of the replay's size is made.
        sums = {name: [part.sum(dtype=torch.float64) for part in parts] for name, parts in given.items()}
        return [name for name, own in sums.items() if not all(bool(one.isfinite()) for one in own)]

    def _take(self, index: Tensor) -> Tensor:
        flat = (index * self.n_agents + self._agent).flatten()
        taken: Tensor = self.rows.flatten(0, 1).index_select(0, flat).unflatten(0, index.shape)
        return taken
