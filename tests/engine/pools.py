"""What tests do with pools of environments."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from damper.engine.envs import Pool


def random_actions(pool: Pool, rng: np.random.Generator) -> Any:
    return rng.uniform(pool.spec.low, pool.spec.high, (pool.size, pool.spec.act_dim)).astype(
        np.float32
    )


def play(pool: Pool, steps: int, seed: int = 0) -> list[Any]:
    """Transitions under actions that row j alone decides: the same for every pool size."""
    rngs = [np.random.default_rng([seed, j]) for j in range(pool.size)]
    low, high = pool.spec.low, pool.spec.high
    return [pool.step(np.stack([rng.uniform(low, high) for rng in rngs])) for _ in range(steps)]


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint does to a state: JSON for the values, arrays as they are."""
    arrays = {key: value.copy() for key, value in state.items() if isinstance(value, np.ndarray)}
    return {
        **json.loads(json.dumps({key: value for key, value in state.items() if key not in arrays})),
        **arrays,
    }
