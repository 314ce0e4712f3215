"""Evaluations that lie in files: where they are written, and what they say of a policy."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from damper.engine.envs import EnvLike, Spec, spec_of
from damper.engine.envs.env_spec_json import same_task
from damper.errors import DamperError
from damper.metrics import is_constant

CHANGES = ("mean_change", "max_change", "total_variation", "spectral_roughness", "saturation")
MEASURES = ("return", "length", "sm", *CHANGES)


def evaluation_folder(source: Path, filter: str | None = None, env: str | None = None) -> Path:
    """Where an evaluation is written: in a run's folder, or beside a file and named after it.

    One with a filter, or in another environment than the recorded one, has a folder of its own.
    """
    parts = ["evaluation", *(part for part in (env, filter) if part)]
    name = re.sub(r"[^\w.-]+", "-", "-".join(parts))
    return source / name if source.is_dir() else source.with_name(f"{source.name}-{name}")


def recorded_means(folder: Path, agent: int, env: EnvSpec, steps: int) -> dict[str, Any] | None:
    """Means over an agent's episodes in an evaluation in a run's folder.

    None if there is none in this environment, or the run had another number of steps then.
    """
    for path in sorted(folder.glob("evaluation*/episodes.json")):
        content = json.loads(path.read_text())
        recorded = content.get("env_spec")
        if recorded is None or content.get("steps") != steps:
            continue
        # Episodes with a filter do not count: an exported file has none.
        rows = [row for row in content["episodes"] if "raw_sm" not in row]
        episodes = [row for row in rows if row["agent"] == agent]
        if episodes and same_task(EnvSpec.from_json(recorded), env):
            return mean_record(content["env"], episodes)
    return None


def mean_record(env: str, episodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The environment, its seeds, every measure's mean, and whether the action was constant."""
    columns = {name: [row[name] for row in episodes] for name in ("seed", *MEASURES)}
    seeds = columns.pop("seed")
    means = {name: float(np.mean(values)) for name, values in columns.items()}
    constant = is_constant(columns["mean_change"], columns["length"])
    about = {"env": env, "episodes": len(episodes), "seeds": seeds}
    return about | means | {"constant_action": constant}


def known_spec(env: EnvLike | None) -> Spec | None:
    """Spaces and control period of an environment; None if it cannot be made here."""
    try:
        return None if env is None else spec_of(env)
    except (DamperError, ImportError, gymnasium.error.Error):
        return None
