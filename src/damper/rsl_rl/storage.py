"""Rows of a rollout behind each minibatch, and which of them are consecutive steps.

rsl_rl counts rows step by step, ``num_envs`` each: the observation after row ``r`` is row
``r + num_envs``, unless the episode or the rollout ended between them; such a row is in no pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rsl_rl.utils import unpad_trajectories
from torch import Tensor

ROWS = "damper_rows"  # a column added to the observations during an update


class Pairs:
    """Pairs of consecutive observations in the storage's last minibatch.

    Attributes:
        batch: that minibatch.
        rows: the storage's rows that it came from.
    """

    batch: Any
    rows: Tensor

    def __init__(self, storage: Any) -> None:
        """For a full storage."""
        self.storage, self.envs = storage, storage.num_envs
        self.count = storage.num_transitions_per_env * storage.num_envs
        ended = storage.dones[..., 0] > 0
        none = torch.zeros_like(ended[:1])
        # Rows whose successor is one step later, rows with a predecessor, and first steps.
        self._leads = torch.cat([~ended[:-1], none]).flatten()
        self._follows = torch.cat([none, ~ended[:-1]]).flatten()
        self._starts = torch.cat([none, ended[:-1]]).flatten()
        self._obs = storage.observations.flatten(0, 1)

    def kept(self, previous: bool) -> Tensor:
        """Rows with a successor; with ``previous`` also a predecessor, or an episode's first."""
        kept = self._leads[self.rows]
        if previous:
            kept = kept & (self._follows | self._starts)[self.rows]
        return self.rows[kept]

    def obs(self, rows: Tensor) -> Any:
        """Observations of these rows."""
        return self._obs[rows]

    def after(self, rows: Tensor) -> Tensor:
        """The rows one step after these."""
        return rows + self.envs

    def before(self, rows: Tensor) -> Tensor:
        """The rows one step before these; at an episode's first step the row itself."""
        return rows - self.envs * self._follows[rows]


@contextmanager
def indexed(storage: Any) -> Iterator[Pairs]:
    """Within the context, record the rows of each minibatch; the minibatches do not change."""
    pairs = Pairs(storage)
    shape = storage.num_transitions_per_env, storage.num_envs
    rows = torch.arange(pairs.count, device=storage.device)
    storage.observations[ROWS] = rows.reshape(shape)
    generators = ("mini_batch_generator", "recurrent_mini_batch_generator")
    for name in generators:
        setattr(storage, name, _recording_rows(getattr(storage, name), pairs))
    try:
        yield pairs
    finally:
        del storage.observations[ROWS]
        for name in generators:
            delattr(storage, name)


def _recording_rows(
    original: Callable[..., Iterator[Any]], pairs: Pairs
) -> Callable[..., Iterator[Any]]:
    def minibatches(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        for batch in original(*arguments, **keywords):
            rows = batch.observations.pop(ROWS)
            if batch.masks is not None:  # trajectories padded to one length
                rows = unpad_trajectories(rows, batch.masks).flatten()
            pairs.batch, pairs.rows = batch, rows
            yield batch

    return minibatches
