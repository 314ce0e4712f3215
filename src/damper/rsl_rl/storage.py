"""Rows of a rollout behind each minibatch, which are consecutive steps, the actor at them.

rsl_rl counts rows step by step, ``num_envs`` each: the observation after row ``r`` is row
``r + num_envs``, unless the episode or the rollout ended between them; such a row is in no pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from rsl_rl.utils import unpad_trajectories
from tensordict import TensorDict
from torch import Tensor

from damper.errors import DamperError

ROWS = "damper_rows"  # a column added to the observations during an update


class Pairs:
    """Pairs of consecutive observations in the storage's last minibatch.

    Attributes:
        batch: that minibatch.
        rows: the storage's rows that it came from.
        obs: the storage's observations by row.
    """

    batch: Any
    rows: Tensor

    def __init__(self, storage: Any) -> None:
        """For a full storage."""
        self.envs = storage.num_envs
        self.count = storage.num_transitions_per_env * storage.num_envs
        ended = storage.dones[..., 0] > 0
        none = torch.zeros_like(ended[:1])
        # Rows whose successor is one step later, rows with a predecessor, and first steps.
        self._leads = torch.cat([~ended[:-1], none]).flatten()
        self._follows = torch.cat([none, ~ended[:-1]]).flatten()
        self._starts = torch.cat([none, ended[:-1]]).flatten()
        self.obs = storage.observations.flatten(0, 1)

    def steps(self, previous: bool) -> list[Tensor]:
        """Rows of the minibatch with a successor, and their successors' rows.

        With ``previous`` those with a predecessor too, and their rows; at an episode's first step
        it is the row itself.
        """
        kept = self._leads[self.rows]
        if not previous:
            rows = self.rows[kept]
            return [rows, rows + self.envs]
        rows = self.rows[kept & (self._follows | self._starts)[self.rows]]
        return [rows, rows + self.envs, rows - self.envs * self._follows[rows]]


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


class RslRlPolicy:
    """Mean actions of rsl_rl's actor as losses see them, in its own units."""

    # Losses compare mean actions, so that the distribution that rsl_rl logs stays as it is.
    stochastic = False

    def __init__(self, actor: Any) -> None:
        """Of an ``MLPModel`` or a class of its kind."""
        self.actor = actor
        self._means: list[tuple[Any, Tensor]] = []

    def see(self, pairs: Pairs, steps: Sequence[Tensor], as_vectors: bool) -> list[Any]:
        """Observations of several sets of rows, whose mean actions come from one forward pass."""
        rows = torch.cat([*steps])
        observed = pairs.obs[rows]
        recurrent = self.actor.is_recurrent
        means = self._means_of_trajectories(pairs)[rows] if recurrent else self.actor(observed)
        if as_vectors:
            groups = [observed[group] for group in self.actor.obs_groups]
            self._sizes = [group.shape[-1] for group in groups]
            observed = torch.cat(groups, -1)
        parts = list(observed.split(len(steps[0])))
        self._means = list(zip(parts, means.chunk(len(steps)), strict=True))
        return parts

    def _means_of_trajectories(self, pairs: Pairs) -> Tensor:
        """Mean actions with the hidden state carried along, at the storage's rows."""
        batch, hidden = pairs.batch, pairs.batch.hidden_states[0]
        means = self.actor(batch.observations, masks=batch.masks, hidden_state=hidden).flatten(0, 1)
        return means.new_zeros(pairs.count, means.shape[-1]).index_copy(0, pairs.rows, means)

    def __call__(self, obs: Any) -> Tensor:
        """Mean actions; those of ``see``'s parts are not computed again."""
        for part, mean in self._means:
            if part is obs:
                return mean
        if self.actor.is_recurrent:
            raise DamperError(
                "the loss evaluates the actor at observations that are not in the batch, but a "
                "recurrent actor's action also depends on those before: use a loss that looks at "
                "batch.obs, batch.next_obs and batch.previous_obs only."
            )
        if isinstance(obs, Tensor):
            groups = zip(self.actor.obs_groups, obs.split(self._sizes, -1), strict=True)
            obs = TensorDict(dict(groups), len(obs))
        return self.actor(obs)
