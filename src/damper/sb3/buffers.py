"""A sample's neighbours in the replay buffer: the step before, and the step after where SB3 looks n steps ahead.

SB3's buffers keep the steps of an environment in order, so the observation before ``s_t`` stands one row above, if that
row led to ``s_t``: it must not have ended its episode, its successor must be ``s_t`` itself (``learn`` called again
starts a new episode without ending the old one), and it must not be the newest row of a full ring. Elsewhere ``s_t``
itself stands in, as at an episode's first step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from torch import Tensor

from damper.errors import DamperError

Index = tuple[NDArray[np.int64], NDArray[np.int64]]


class Neighbours(NamedTuple):
    """What stands around the sampled transitions."""

    previous_obs: Any
    next_obs: Any
    terminated: Tensor


class RemembersRows(ReplayBuffer):
    """SB3's replay buffer, and before another of SB3's buffers a mixin: which rows the last sample came from."""

    rows: Index

    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Any:
        # SB3 draws the environments inside; the same draw is made here first and taken back.
        state = np.random.get_state()
        self.rows = batch_inds, np.random.randint(0, self.n_envs, size=(len(batch_inds),))
        np.random.set_state(state)
        return super()._get_samples(batch_inds, env=env)


class DictRows(RemembersRows, DictReplayBuffer):
    """SB3's replay buffer for Dict observations."""


class NStepRows(RemembersRows, NStepReplayBuffer):
    """SB3's n-step replay buffer."""


class HerRows(HerReplayBuffer):
    """SB3's hindsight buffer, which first takes real samples, then ones with another goal."""

    rows: Index

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """SB3's sample; ``rows`` tells where it came from."""
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


_REMEMBERING: dict[type, type] = {
    ReplayBuffer: RemembersRows,
    DictReplayBuffer: DictRows,
    NStepReplayBuffer: NStepRows,
    HerReplayBuffer: HerRows,
}


def remember_rows(buffer: Any, method: str) -> None:
    """Make one of SB3's buffers remember its rows, in place; a custom class is refused."""
    if isinstance(buffer, RemembersRows | HerRows):
        return
    if type(buffer) not in _REMEMBERING:
        raise DamperError(
            f"method {method!r} needs each sample's neighbours in the replay buffer, which SB3's own buffers tell but "
            f"{type(buffer).__name__} does not: use one of them, or let it inherit damper.sb3.RemembersRows too."
        )
    buffer.__class__ = _REMEMBERING[type(buffer)]


def neighbours(buffer: Any, samples: Any, env: Any, previous: bool) -> Neighbours:
    """What stands around the last sample, normalised as it is; the previous observations only if asked for."""
    rows, envs = buffer.rows
    before = _before(buffer, rows, envs) if previous else None
    # A hindsight sample's goal was exchanged, and the state before belongs to the same goal.
    goal = {"desired_goal": samples.observations["desired_goal"]} if isinstance(buffer, HerReplayBuffer) else {}
    if samples.discounts is None:
        after, terminated = samples.next_observations, samples.dones
    else:
        after = _tensors(buffer, _take(buffer.next_observations, rows, envs), env)
        terminated = buffer.to_torch(buffer.dones[rows, envs] * (1 - buffer.timeouts[rows, envs]))
    previous_obs = _tensors(buffer, before, env, goal) if previous else None
    return Neighbours(previous_obs, after, terminated.reshape(-1))


def _before(buffer: Any, rows: NDArray[np.int64], envs: NDArray[np.int64]) -> Any:
    """``s_{t−1}``, or ``s_t`` where the row above did not lead to it."""
    above = (rows - 1) % buffer.buffer_size
    obs, led_to = _take(buffer.observations, rows, envs), _take(buffer.next_observations, above, envs)
    oldest = buffer.pos if buffer.full else 0
    follows = (rows != oldest) & (buffer.dones[above, envs] == 0) & _same(obs, led_to)
    before = _take(buffer.observations, above, envs)
    if not isinstance(obs, dict):
        return np.where(_fit(follows, obs), before, obs)
    return {key: np.where(_fit(follows, obs[key]), before[key], obs[key]) for key in obs}


def _take(arrays: Any, rows: NDArray[np.int64], envs: NDArray[np.int64]) -> Any:
    return {key: array[rows, envs] for key, array in arrays.items()} if isinstance(arrays, dict) else arrays[rows, envs]


def _same(a: Any, b: Any) -> NDArray[np.bool_]:
    """Whether each sample's observations are equal, entry by entry."""
    if isinstance(a, dict):
        return np.asarray(np.logical_and.reduce([_same(a[key], b[key]) for key in a]))
    return np.asarray((a == b).reshape(len(a), -1).all(1))


def _fit(mask: NDArray[np.bool_], array: NDArray[Any]) -> NDArray[np.bool_]:
    return mask.reshape(-1, *(1,) * (array.ndim - 1))


def _tensors(buffer: Any, obs: Any, env: Any, goal: dict[str, Tensor] | None = None) -> Any:
    normalised = buffer._normalize_obs(obs, env)
    if isinstance(normalised, dict):
        return {key: buffer.to_torch(array) for key, array in normalised.items()} | (goal or {})
    return buffer.to_torch(normalised)
