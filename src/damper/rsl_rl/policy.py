"""rsl_rl's actor as losses see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from damper.errors import DamperError
from damper.rsl_rl.storage import Pairs


class RslRlPolicy:
    """Mean actions of rsl_rl's actor, in its own units."""

    # Losses compare mean actions, so that the distribution that rsl_rl logs stays as it is.
    stochastic = False

    def __init__(self, actor: Any) -> None:
        """Of an ``MLPModel`` or a class of its kind."""
        self.actor = actor
        self._means: list[tuple[Any, Tensor]] = []

    def see(self, pairs: Pairs, steps: Sequence[Tensor], as_vectors: bool) -> list[Any]:
        """Observations of several sets of rows, whose mean actions come from one forward pass."""
        observed = pairs.obs(torch.cat([*steps]))
        if self.actor.is_recurrent:
            means = self._means_of_trajectories(pairs)[torch.cat([*steps])]
        else:
            means = self.actor(observed)
        if as_vectors:
            observed = self._vector(observed)
        parts = list(observed.split(len(steps[0])))
        self._means = list(zip(parts, means.chunk(len(steps)), strict=True))
        return parts

    def _means_of_trajectories(self, pairs: Pairs) -> Tensor:
        """Mean actions with the hidden state carried along, at the storage's rows."""
        batch = pairs.batch
        means = self.actor(
            batch.observations, masks=batch.masks, hidden_state=batch.hidden_states[0]
        ).flatten(0, 1)
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

    def _vector(self, obs: Any) -> Tensor:
        """The actor's observation groups concatenated to one vector."""
        parts = [obs[group] for group in self.actor.obs_groups]
        self._sizes = [part.shape[-1] for part in parts]
        return torch.cat(parts, -1)
