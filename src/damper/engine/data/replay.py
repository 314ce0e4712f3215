"""Replay buffer on the training device: a ring of packed rows, one per step and agent.

A row is ``(s, a, s', r, d, first)``, so storing a step is one copy and a batch is one gather. The
critic's input ``(s, a)`` is contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike as Array
from numpy.typing import NDArray
from torch import Tensor

from damper.engine.data.random_streams import REPLAY_INDICES, Streams
from damper.engine.device.cuda_graph import CAPTURE_WARM_UP_RUNS, Graphed
from damper.engine.device.transfers import Upload
from damper.interface import Batch


class Replay:
    """Transitions of P agents in lockstep, ``[capacity, P, D]``; ``(s, s')`` are true steps.

    It is allocated at full size. With ``graph``, ``add`` replays a CUDA graph.
    """

    def __init__(
        self,
        capacity: int,
        n_agents: int,
        obs_dim: int,
        act_dim: int,
        device: torch.device,
        dtype: torch.dtype,
        graph: bool = False,
    ) -> None:
        self.capacity, self.n_agents = capacity, n_agents
        self.obs_dim, self.act_dim = obs_dim, act_dim
        width = self.width(obs_dim, act_dim)
        self.rows = torch.zeros(capacity, n_agents, width, device=device, dtype=dtype)
        # Steps stored: on the host for bookkeeping, on the device for sampling inside a graph.
        self.stored = 0
        self.stored_on_device = torch.zeros((), dtype=torch.int64, device=device)
        # Steps to sample from: those stored and, after `count_next_step`, the one in progress.
        self.sampleable = 0
        self.sampleable_on_device = torch.zeros_like(self.stored_on_device)
        # For indices into the rows of all agents flattened: one gather instead of one per agent.
        self._agent = torch.arange(n_agents, device=device).unsqueeze(1)
        self._new = Upload(self.rows.shape[1:], device, dtype)
        self._newest = torch.zeros_like(self.rows[:1])
        self._launch_write = Graphed(self._write, self._written) if graph else self._write

    @staticmethod
    def width(obs_dim: int, act_dim: int) -> int:
        """Number of columns of a row."""
        return 2 * obs_dim + act_dim + 3

    @staticmethod
    def pack(
        obs: Array, action: Array, next_obs: Array, reward: Array, terminated: Array, first: Array
    ) -> NDArray[Any]:
        """One step of all agents as rows ``[P, D]``; ``first`` marks an episode's first step."""
        scalars = (np.asarray(column)[:, None] for column in (reward, terminated, first))
        parts = (np.asarray(obs), np.asarray(action), np.asarray(next_obs), *scalars)
        # NumPy concatenates six small arrays in a few microseconds, and this happens at every step.
        return np.concatenate(parts, -1, dtype=parts[0].dtype, casting="unsafe")

    def add(self, rows: Array) -> None:
        """Store one step of all agents, overwriting the oldest once the buffer is full."""
        self._new.host_buffer()[...] = rows
        self._launch_write()
        self._new.record_event()
        self.stored += 1
        self.sampleable = self.stored

    def _write(self) -> None:
        """The device's part of ``add``, on device tensors alone: a CUDA graph can capture it."""
        self._new.send(self._newest[0])
        self.rows.index_copy_(0, (self.stored_on_device % self.capacity).unsqueeze(0), self._newest)
        self.stored_on_device += 1
        self.sampleable_on_device.copy_(self.stored_on_device)

    def count_next_step(self) -> None:
        """Make sampling count the step in progress before it is stored.

        Only for batches without that step (``Learner.newest_sampled``): they are the same as after
        it is stored.
        """
        self.sampleable = self.stored + 1
        torch.add(self.stored_on_device, 1, out=self.sampleable_on_device)

    def set_stored(self, stored: int) -> None:
        """Set the number of stored steps after writing their rows directly."""
        self.stored = self.sampleable = stored
        self.stored_on_device.fill_(stored)
        self.sampleable_on_device.fill_(stored)

    def _written(self) -> dict[str, Tensor]:
        """The tensors that ``_write`` changes while a graph of it is captured."""
        count = min(CAPTURE_WARM_UP_RUNS, self.capacity)  # rows that the warm-up writes
        rows = {str(i): self.rows[(self.stored + i) % self.capacity] for i in range(count)}
        counts = {"stored": self.stored_on_device, "sampleable": self.sampleable_on_device}
        return {**rows, **counts}

    def sample(
        self, streams: Streams, counter: Tensor | int, batch_size: int, previous_obs: bool = False
    ) -> Batch:
        """A uniform batch per agent, ``[P, B, ·]``; can run inside a CUDA graph."""
        size = self.sampleable_on_device.clamp(max=self.capacity)
        index = streams.integers(REPLAY_INDICES, counter, (batch_size,), size)
        return self.gather(index, previous_obs)

    def gather(self, index: Tensor, previous_obs: bool = False) -> Batch:
        """The transitions at ring positions ``index`` ``[P, B]``."""
        d, a = self.obs_dim, self.act_dim
        obs, action, next_obs, scalars = self._take(index).split((d, a, d, 3), -1)
        reward, terminated, first = scalars.unbind(-1)
        before = None
        # The step before in the ring is the step before in time: agents act in lockstep.
        if previous_obs:
            # The predecessor of the oldest step has been overwritten, so that step counts as an
            # episode's first.
            count = self.sampleable_on_device
            oldest = (count > self.capacity) & (index == count % self.capacity)
            missing = ((first > 0) | oldest).unsqueeze(-1)
            before = torch.where(missing, obs, self._take((index - 1) % self.capacity)[..., :d])
        return Batch(obs, action, reward, next_obs, terminated, before)

    def not_finite(self, agent: int) -> list[str]:
        """Which of an agent's observations and rewards are not all finite; waits for the device."""
        d, a = self.obs_dim, self.act_dim
        obs, _, next_obs, scalars = self.rows[: self.stored, agent].split((d, a, d, 3), -1)
        inputs = {"observations": (obs, next_obs), "rewards": (scalars[:, 0],)}
        # A sum is finite if all terms are: float64 does not overflow, and no temporary of the
        # buffer's size is made.
        return [
            name
            for name, parts in inputs.items()
            if not all(part.sum(dtype=torch.float64).isfinite() for part in parts)
        ]

    def _take(self, index: Tensor) -> Tensor:
        flat = (index * self.n_agents + self._agent).flatten()
        return self.rows.flatten(0, 1).index_select(0, flat).unflatten(0, index.shape)
