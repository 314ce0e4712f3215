"""Fixed statistics of observations, part of a policy that was trained on normalised ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Normaliser(NamedTuple):
    """Fixed statistics: ``clip((s − mean) · scale, ±clip)``; rsl_rl's have no clip."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    clip: float

    @classmethod
    def from_variance(
        cls, mean: NDArray[np.float64], var: NDArray[np.float64], epsilon: float, clip: float
    ) -> Normaliser:
        """Make one with scale ``1/√(variance + ε)``."""
        return cls(mean, 1.0 / np.sqrt(var + epsilon), clip)

    @property
    def is_initial(self) -> bool:
        """Whether it equals a new ``VecNormalize``, mean 0 and variance 1, before any data."""
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
