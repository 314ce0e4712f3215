"""Neighbours of a sample in SB3's buffers: the steps before and after it.

SB3's replay buffers keep an environment's steps in order: the observation before ``s_t`` is one row
above, if that row led to ``s_t``. It must not have ended its episode, its successor must be ``s_t``
itself (``learn`` called again starts a new episode without ending the old one), and it must not be
the newest row of a full ring buffer. Otherwise ``s_t`` takes its place, as at an episode's first
step.

Rollout buffers keep neither successors nor ends, only where each episode starts: two adjacent rows
are consecutive observations of one environment unless the second starts an episode. An episode's
last row is in no pair. The successor of a rollout's last row is set when the rollout is done
(``finish``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from torch import Tensor

from damper.errors import DamperError

Index = tuple[NDArray[np.int64], NDArray[np.int64]]


class Neighbours(NamedTuple):
    """Observations before and after ``B`` sampled ones, and whether the episode ended, ``[B]``."""

    previous_obs: Any
    next_obs: Any
    terminated: Tensor


class IndexedReplayBuffer(ReplayBuffer):
    """SB3's replay buffer, also as a mixin; records the rows of its last sample."""

    rows: Index

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Any:
        # SB3 draws the environments inside: make the same draw first, then restore the generator.
        state = np.random.get_state()
        self.rows = batch_inds, np.random.randint(0, self.n_envs, size=(len(batch_inds),))
        np.random.set_state(state)
        return super()._get_samples(batch_inds, env=env)


class IndexedDictReplayBuffer(IndexedReplayBuffer, DictReplayBuffer):
    """SB3's replay buffer for Dict observations."""


class IndexedNStepReplayBuffer(IndexedReplayBuffer, NStepReplayBuffer):
    """SB3's n-step replay buffer."""


class IndexedHerReplayBuffer(HerReplayBuffer):
    """SB3's hindsight buffer, whose samples are real ones followed by ones with another goal."""

    rows: Index

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """SB3's sample; ``rows`` is where it came from."""
        self._taken: list[Index] = []
        samples = super().sample(batch_size, env)
        rows, envs = (np.concatenate(parts) for parts in zip(*self._taken, strict=True))
        self.rows = rows, envs
        return samples

    def _get_real_samples(self, batch_indices: Any, env_indices: Any, env: Any = None) -> Any:
        self._taken.append((batch_indices, env_indices))
        return super()._get_real_samples(batch_indices, env_indices, env)

    def _get_virtual_samples(self, batch_indices: Any, env_indices: Any, env: Any = None) -> Any:
        self._taken.append((batch_indices, env_indices))
        return super()._get_virtual_samples(batch_indices, env_indices, env)


class IndexedRolloutBuffer(RolloutBuffer):
    """SB3's rollout buffer, also as a mixin; records the rows of its last minibatch.

    Rows are counted as SB3 flattens them: environment by environment, ``buffer_size`` steps each.
    """

    rows: NDArray[np.int64]
    _last_obs: Any = None
    # ``episode_starts`` of the rollout that ``finish`` ended; ``reset`` makes another array.
    _finished: Any = None

    def finish(self, last_obs: Any, starts: NDArray[np.bool_]) -> None:
        """Set the observations after the last rows, and which of them start an episode."""
        self._last_obs, self._last_starts = last_obs, np.asarray(starts) > 0
        self._finished = self.episode_starts

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        """SB3's minibatches; first finds out which of the flattened rows are consecutive."""
        starts = self.swap_and_flatten(self.episode_starts).reshape(-1) > 0
        count, last = len(starts), np.arange(1, self.n_envs + 1) * self.buffer_size - 1
        self._starts = starts
        # Whether the row above is the previous observation.
        self._has_previous = ~starts & (np.arange(count) % self.buffer_size > 0)
        self._has_next = np.append(self._has_previous[1:], False)
        # The successor's row; rows from ``count`` on are the observations given to ``finish``.
        self._next_row = np.arange(1, count + 1)
        self._next_row[last] = np.arange(count, count + self.n_envs)
        if self._finished is self.episode_starts:
            self._has_next[last] = ~self._last_starts
        self.flat_rewards = self.swap_and_flatten(self.rewards).reshape(-1)
        yield from super().get(batch_size)

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Any:
        self.rows = batch_inds
        return super()._get_samples(batch_inds, env)

    def pairs(self, previous: bool) -> tuple[NDArray[np.bool_], list[NDArray[np.int64]]]:
        """Which rows of the last minibatch are in a pair; these rows and their successors'.

        With ``previous`` those with a predecessor too, and their rows: the row above, or at an
        episode's first step the row itself.
        """
        paired = self._has_next[self.rows]
        if previous:
            paired &= (self._has_previous | self._starts)[self.rows]
        rows = self.rows[paired]
        before = [rows - self._has_previous[rows]] if previous else []
        return paired, [rows, self._next_row[rows], *before]

    def take(self, rows: NDArray[np.int64]) -> Any:
        """Observations of these rows as tensors, ``[len(rows), ...]``."""
        if isinstance(self.observations, dict):
            arrays, last = self.observations, self._last_obs or dict.fromkeys(self.observations)
            return {key: self._take(array, last[key], rows) for key, array in arrays.items()}
        return self._take(self.observations, self._last_obs, rows)

    def _take(self, array: NDArray[Any], last: Any, rows: NDArray[np.int64]) -> Tensor:
        beyond = rows >= len(array)
        if not beyond.any():
            return self.to_torch(array[rows], copy=False)
        taken = array[np.where(beyond, 0, rows)]
        after_last = np.asarray(last).reshape(self.n_envs, *array.shape[1:])
        taken[beyond] = after_last[rows[beyond] - len(array)]
        return self.to_torch(taken, copy=False)


class IndexedDictRolloutBuffer(IndexedRolloutBuffer, DictRolloutBuffer):
    """SB3's rollout buffer for Dict observations."""


_INDEXED: dict[type, type] = {
    ReplayBuffer: IndexedReplayBuffer,
    DictReplayBuffer: IndexedDictReplayBuffer,
    NStepReplayBuffer: IndexedNStepReplayBuffer,
    HerReplayBuffer: IndexedHerReplayBuffer,
    RolloutBuffer: IndexedRolloutBuffer,
    DictRolloutBuffer: IndexedDictRolloutBuffer,
}


def indexed_class(buffer: Any, method: str) -> type:
    """The subclass of a buffer's class that records rows; raises for a custom class without."""
    kind = type(buffer)
    if isinstance(buffer, tuple(_INDEXED.values())):
        return kind
    if kind not in _INDEXED:
        name = "rollout" if isinstance(buffer, RolloutBuffer) else "replay"
        raise DamperError(
            f"method {method!r} needs each sample's neighbours in the {name} buffer, which SB3's "
            f"own buffers provide but {kind.__name__} does not: use one of them, or let it also "
            f"inherit from damper.sb3.Indexed{name.capitalize()}Buffer."
        )
    return _INDEXED[kind]


@contextmanager
def indexed(buffer: Any, method: str) -> Iterator[Any]:
    """Within the context, one of SB3's buffers records rows; afterwards its class is SB3's."""
    kind = type(buffer)
    buffer.__class__ = indexed_class(buffer, method)
    try:
        yield buffer
    finally:
        buffer.__class__ = kind


def neighbours(buffer: Any, samples: Any, env: Any, previous: bool) -> Neighbours:
    """The neighbours of the last sample, normalised like it; ``previous`` asks for those before."""
    rows, envs = buffer.rows
    if samples.discounts is None:
        after, terminated = samples.next_observations, samples.dones
    else:
        after = _tensors(buffer, _take(buffer.next_observations, rows, envs), env)
        terminated = buffer.to_torch(buffer.dones[rows, envs] * (1 - buffer.timeouts[rows, envs]))
    previous_obs: Any = None
    if previous:
        previous_obs = _tensors(buffer, _before(buffer, rows, envs), env)
        # A hindsight sample's goal was replaced: give the previous observation the same goal.
        if isinstance(buffer, HerReplayBuffer):
            previous_obs["desired_goal"] = samples.observations["desired_goal"]
    return Neighbours(previous_obs, after, terminated.reshape(-1))


def _before(buffer: Any, rows: NDArray[np.int64], envs: NDArray[np.int64]) -> Any:
    """``s_{t−1}``, or ``s_t`` where the row above did not lead to it."""
    above = (rows - 1) % buffer.buffer_size
    obs = _take(buffer.observations, rows, envs)
    before = _take(buffer.observations, above, envs)
    led_to = _take(buffer.next_observations, above, envs)
    oldest = buffer.pos if buffer.full else 0
    follows = (rows != oldest) & (buffer.dones[above, envs] == 0) & _same(obs, led_to)
    if not isinstance(obs, dict):
        return np.where(_fit(follows, obs), before, obs)
    return {key: np.where(_fit(follows, obs[key]), before[key], obs[key]) for key in obs}


def _take(arrays: Any, rows: NDArray[np.int64], envs: NDArray[np.int64]) -> Any:
    if isinstance(arrays, dict):
        return {key: array[rows, envs] for key, array in arrays.items()}
    return arrays[rows, envs]


def _same(a: Any, b: Any) -> NDArray[np.bool_]:
    """Whether each sample's observations are equal, entry by entry."""
    if isinstance(a, dict):
        return np.logical_and.reduce([_same(a[key], b[key]) for key in a])
    return (a == b).reshape(len(a), -1).all(1)


def _fit(mask: NDArray[np.bool_], array: NDArray[Any]) -> NDArray[np.bool_]:
    return mask.reshape(-1, *(1,) * (array.ndim - 1))


def _tensors(buffer: Any, obs: Any, env: Any) -> Any:
    normalised = buffer._normalize_obs(obs, env)
    if isinstance(normalised, dict):
        return {key: buffer.to_torch(array) for key, array in normalised.items()}
    return buffer.to_torch(normalised)
