"""How smoothly a policy acts in its environment, for the contract: from an evaluation beside it, or rolled out now."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike

from damper.engine.device.threads import torch_threads
from damper.engine.envs import EnvLike, Spec, env_spec_from_id, spec_of
from damper.engine.envs.env_spec_json import same_task
from damper.engine.envs.run_episodes import Act, evaluation_seeds, run_episodes
from damper.errors import DamperError
from damper.metrics import is_constant

EPISODES = (
    3  # enough to tell a smooth policy from a shaking one; `damper evaluate` has the protocol's ten
)
_CHANGES = ("mean_change", "max_change", "total_variation", "spectral_roughness", "saturation")
_MEASURES = ("return", "length", "sm", *_CHANGES)


def measure_smoothness(
    act: Act, env: EnvLike | None, episodes: int, bounds: tuple[ArrayLike, ArrayLike] | None = None
) -> dict[str, Any] | None:
    """Means over deterministic episodes on the protocol's seeds; None where no environment can be made.

    Args:
        act: the policy, from observations ``[N, d]`` to actions ``[N, A]``.
        env: the environment, if known.
        episodes: how many; 0 for none.
        bounds: the policy's own range of actions, for a warning if the environment's differs.
    """
    if env is None or episodes == 0 or known_spec(env) is None:
        return None
    with torch_threads(1):
        found, spec = run_episodes(act, env, evaluation_seeds(episodes))
    compare_ranges(bounds, spec)
    return _means(spec.id, [episode.record() for episode in found])


def compare_ranges(bounds: tuple[ArrayLike, ArrayLike] | None, spec: Spec) -> None:
    """Warn where the policy acts in another range than the environment's: the same number means another force there."""
    if bounds is None:
        return
    own, its = (
        np.array([np.ravel(bound) for bound in bounds], float),
        np.array([spec.low, spec.high]),
    )
    if own.shape == its.shape and np.isfinite(own).all() and not np.allclose(own, its):
        logging.getLogger("damper").warning(
            "the policy's actions go from %s to %s, but %s takes actions from %s to %s: they were "
            "clipped, not "
            "rescaled; evaluate it in the environment that it was trained in, or wrap this one to "
            "take the policy's "
            "range.",
            *(*own.tolist(), spec.id, *its.tolist()),
        )


def warn_of_constant_action(agent: Mapping[str, Any], method: str | None) -> None:
    """Warn that a policy holds one constant action, which makes its perfect smoothness meaningless.

    Args:
        agent: its row: seed (None or -1 if unknown), and the settings that tell it from other
            agents.
        method: its method, if the row has none.
    """
    named = {"method": method, **agent}
    known = {
        name: value
        for name, value in named.items()
        if value is not None and (name, value) != ("seed", -1)
    }
    words = (str(value) if name == "method" else f"{name} {value}" for name, value in known.items())
    logging.getLogger("damper").warning(
        "%s holds one action throughout each episode, so its smoothness says nothing: a smaller "
        "eta (or weight of the "
        "smoothing loss) is the usual fix.",
        f"the agent of {', '.join(words)}" if known else "the policy",
    )


def known_spec(env: EnvLike | None) -> Spec | None:
    """Spaces and control period of an environment; None if it is not known or cannot be made here."""
    try:
        return None if env is None else spec_of(env)
    except (DamperError, ImportError, gymnasium.error.Error):
        return None


def beside(folder: Path, agent: int, env: EnvSpec, steps: int) -> dict[str, Any] | None:
    """Means over an agent's episodes in the evaluation in ``folder``.

    None if it was made in another environment, or when the run had another number of steps.
    """
    if not (folder / "episodes.json").is_file():
        return None
    content = json.loads((folder / "episodes.json").read_text())
    recorded = content.get("env_spec")
    seen = env_spec_from_id(content["env"]) if recorded is None else EnvSpec.from_json(recorded)
    # Episodes with a filter do not count: the exported file has none.
    mine = [row for row in content["episodes"] if row["agent"] == agent and "raw_sm" not in row]
    fits = same_task(seen, env) and content.get("steps", steps) == steps
    return _means(content["env"], mine) if mine and fits else None


def _means(env: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The environment, its seeds, every measure's mean over the episodes, and whether the action was constant."""
    facts = {"env": env, "episodes": len(rows), "seeds": [row["seed"] for row in rows]}
    means = {name: float(np.mean([row[name] for row in rows])) for name in _MEASURES}
    constant = is_constant([row["mean_change"] for row in rows], [row["length"] for row in rows])
    return {**facts, **means, "constant_action": constant}
