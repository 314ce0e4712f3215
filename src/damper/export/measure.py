"""How smoothly a policy acts in its environment, for the contract: from an evaluation beside it, or rolled out now."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from damper.engine.envs import spec_of
from damper.errors import DamperError
from damper.evaluation.evaluate import evaluate

EPISODES = 3  # enough to tell a smooth policy from a shaking one; `damper evaluate` has the protocol's ten
_CHANGES = ("mean_change", "max_change", "total_variation", "spectral_roughness", "saturation")
_MEASURES = ("return", "length", "smoothness", *_CHANGES)


def roll_out(act: Callable[..., Any], env: str | None, episodes: int) -> dict[str, Any] | None:
    """Means over deterministic episodes on the protocol's seeds; None where no environment can be made.

    Args:
        act: the policy, from observations ``[N, d]`` to actions ``[N, A]``.
        env: the environment's id, if known.
        episodes: how many; 0 for none.
    """
    if env is None or episodes == 0 or sizes_of(env) is None:
        return None
    evaluation = evaluate(act, env, episodes)
    return _means(evaluation.env, evaluation.records())


def sizes_of(env: str) -> tuple[int, int] | None:
    """How many numbers an environment gives and takes; None where it is not installed."""
    try:
        spec = spec_of(env)
    except (DamperError, ImportError, gymnasium.error.Error):
        return None
    return spec.obs_dim, spec.act_dim


def beside(folder: Path, agent: int) -> dict[str, Any] | None:
    """Means over an agent's episodes of an evaluation that lies beside the run."""
    if not (folder / "episodes.json").is_file():
        return None
    content = json.loads((folder / "episodes.json").read_text())
    mine = [row for row in content["episodes"] if row["agent"] == agent]
    return _means(content["env"], mine) if mine else None


def _means(env: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The environment, its seeds, and every measure's mean over the episodes."""
    facts = {"env": env, "episodes": len(rows), "seeds": [row["seed"] for row in rows]}
    return {**facts, **{name: float(np.mean([row[name] for row in rows])) for name in _MEASURES}}
