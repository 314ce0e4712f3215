"""Normalising each agent's observations by running statistics, as SB3's ``VecNormalize`` does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from damper.policies.normaliser import Normaliser

CLIP, EPSILON, FIRST_COUNT = 10.0, 1e-8, 1e-4  # as in VecNormalize and RunningMeanStd


class RunningMeanStd:
    """Mean and variance of each agent's observations so far, ``[P, d]`` in float64.

    Updated in place, without a device sync.
    """

    def __init__(self, n_agents: int, obs_dim: int, device: torch.device) -> None:
        # As in SB3's class of this name: mean 0, variance 1, and almost no weight.
        exact: dict[str, Any] = {"dtype": torch.float64, "device": device}
        self.mean = torch.zeros(n_agents, obs_dim, **exact)
        self.var = torch.ones(n_agents, obs_dim, **exact)
        self.count = torch.full((n_agents, 1), FIRST_COUNT, **exact)

    def state(self) -> dict[str, Tensor]:
        """The tensors that ``update`` changes, by name."""
        return {"obs_mean": self.mean, "obs_var": self.var, "obs_count": self.count}

    def update(self, obs: Tensor, active: Tensor) -> None:
        """Add an observation ``[P, d]`` of the agents that are ``active`` ``[P]`` (Chan)."""
        total = self.count + 1.0
        delta = obs.to(self.mean.dtype) - self.mean
        mean = self.mean + delta / total
        var = (self.var * self.count + delta.square() * self.count / total) / total
        for old, new in ((self.mean, mean), (self.var, var), (self.count, total)):
            old.copy_(torch.where(active.unsqueeze(1), new, old))

    def normalise(self, obs: Tensor) -> Tensor:
        """Observations ``[P, ..., d]`` by their agent's current statistics; the dtype stays."""
        shape = (len(self.mean), *(1,) * (obs.ndim - 2), -1)
        mean, scale = self.mean.view(shape), (self.var + EPSILON).sqrt().reciprocal().view(shape)
        return ((obs.to(mean.dtype) - mean) * scale).clamp(-CLIP, CLIP).to(obs.dtype)

    def normalisers(self) -> list[Normaliser]:
        """Each agent's current statistics, on the host."""
        mean, var = (tensor.cpu().numpy() for tensor in (self.mean, self.var))
        rows = zip(mean, var, strict=True)
        return [Normaliser.from_variance(m, v, EPSILON, CLIP) for m, v in rows]
