"""Normalising each agent's observations by running statistics, as SB3's ``VecNormalize`` does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CLIP, EPSILON, FIRST_COUNT = 10.0, 1e-8, 1e-4  # as in VecNormalize and RunningMeanStd


class Normaliser(NamedTuple):
    """Fixed statistics of observations: ``clip((s − mean) · scale, ±clip)``; rsl_rl's have no clip."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    clip: float

    @classmethod
    def from_vecnormalize(cls, vecnormalize: Any) -> Normaliser:
        """Make one from an SB3 ``VecNormalize``."""
        rms = vecnormalize.obs_rms
        return cls.from_variance(
            rms.mean, rms.var, vecnormalize.epsilon, float(vecnormalize.clip_obs)
        )

    @classmethod
    def from_variance(
        cls, mean: NDArray[np.float64], var: NDArray[np.float64], epsilon: float, clip: float
    ) -> Normaliser:
        """Make one with scale ``1/√(variance + ε)``."""
        return cls(mean, 1.0 / np.sqrt(var + epsilon), clip)

    @property
    def is_initial(self) -> bool:
        """Whether it equals a new ``VecNormalize``, mean 0 and variance 1, that has seen no observation."""
        return not self.mean.any() and np.allclose(self.scale, 1.0, atol=1e-6)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with every digit."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist(), "clip": self.clip}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Normaliser:
        """Make one from the output of ``to_dict``."""
        return cls(np.array(values["mean"]), np.array(values["scale"]), values["clip"])

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Normalise as SB3 does: in float64, then rounded to float32."""
        return np.clip((obs - self.mean) * self.scale, -self.clip, self.clip).astype(np.float32)


class RunningMeanStd:
    """Mean and variance of each agent's observations so far, ``[P, d]`` in float64.

    Updated in place, without a device sync.
    """

    def __init__(self, n_agents: int, obs_dim: int, device: torch.device) -> None:
        """As in SB3's class of this name: mean 0, variance 1, and almost no weight."""
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
        return [
            Normaliser.from_variance(m, v, EPSILON, CLIP) for m, v in zip(mean, var, strict=True)
        ]
