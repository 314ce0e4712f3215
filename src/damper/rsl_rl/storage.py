"""The rows of a rollout that a minibatch came from, and which of them are consecutive steps of one environment.

rsl_rl counts rows step by step, ``num_envs`` each: the observation after row ``r`` is row
``r + num_envs``, unless the episode or the rollout ended between them; such a row is in no pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

ROWS = "damper_rows"  # a column added to the observations during an update


class Pairs:
    """Pairs of consecutive observations in the minibatch that the storage returned last."""

    def __init__(self, storage: Any) -> None:
        """For a full storage."""
        self.storage, self.envs = storage, storage.num_envs
        ended = storage.dones[..., 0] > 0
        none = torch.zeros_like(ended[:1])
        self._leads = torch.cat(
            [~ended[:-1], none]
        ).flatten()  # rows whose successor is one step later
        self._follows = torch.cat([none, ~ended[:-1]]).flatten()
        self._starts = torch.cat([none, ended[:-1]]).flatten()
        self._obs = storage.observations.flatten(0, 1)
        self.rows = torch.empty(0, dtype=torch.long)

    def kept(self, previous: bool) -> Tensor:
        """Rows whose successor is recorded; with ``previous`` only if they have a predecessor or start an episode."""
        kept = self._leads[self.rows]
        if previous:
            kept = kept & (self._follows | self._starts)[self.rows]
        return self.rows[kept]

    def obs(self, rows: Tensor) -> Any:
        """Observations of these rows."""
        return self._obs[rows]

    def after(self, rows: Tensor) -> Any:
        """Observations one step after these rows."""
        return self._obs[rows + self.envs]

    def before(self, rows: Tensor) -> Any:
        """Observations one step before these rows; at an episode's first step the row's own."""
        return self._obs[rows - self.envs * self._follows[rows]]


@contextmanager
def indexed(storage: Any) -> Iterator[Pairs]:
    """Within the context, record the rows of each minibatch of the storage; the minibatches do not change."""
    pairs, original = Pairs(storage), storage.mini_batch_generator
    count = storage.num_transitions_per_env * storage.num_envs
    shape = storage.num_transitions_per_env, storage.num_envs
    storage.observations[ROWS] = torch.arange(count, device=storage.device).reshape(shape)
    storage.mini_batch_generator = _recording_rows(original, pairs)
    try:
        yield pairs
    finally:
        del storage.observations[ROWS], storage.mini_batch_generator


def _recording_rows(
    original: Callable[..., Iterator[Any]], pairs: Pairs
) -> Callable[..., Iterator[Any]]:
    def minibatches(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        for batch in original(*arguments, **keywords):
            pairs.rows = batch.observations.pop(ROWS)
            yield batch

    return minibatches
