"""The contract of an exported policy, as JSON: what a program that runs it must know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from damper.engine.envs import EnvLike, Spec, spec_of
from damper.engine.envs.env_spec_json import missing_part, to_json
from damper.engine.run.provenance import versions
from damper.errors import DamperError
from damper.export.files import BATCH, INPUT, OUTPUT
from damper.export.network import Network
from damper.export.sources import Source
from damper.tasks import find_task

FORMAT = "damper-policy-1"


def make_contract(source: Source, network: Network, smoothness: dict[str, Any] | None) -> dict[str, Any]:
    """The contract as a dictionary: names, shapes, ranges, control period, smoothness and origin."""
    ranges, env = observation_ranges(source), _recorded(source.env)
    return {
        "format": FORMAT,
        "env": env.id if env and missing_part(env) is None else None,
        "env_spec": to_json(env) if env else None,
        "deterministic": True,
        "observation": {
            "name": INPUT,
            "dtype": "float32",
            "shape": [BATCH, network.inputs],
            "order": "as the environment returns it",
            "low": _json(ranges[0]) if ranges else None,
            "high": _json(ranges[1]) if ranges else None,
            "normalisation": "inside" if source.normaliser else "none",
        },
        "action": {
            "name": OUTPUT,
            "dtype": "float32",
            "shape": [BATCH, network.outputs],
            "low": _json(np.ravel(source.low)),
            "high": _json(np.ravel(source.high)),
        },
        "control_period_seconds": _environment(source.env)[1],
        "smoothness": smoothness,
        "training": source.facts,
        "versions": versions(),
    }


def observation_ranges(source: Source) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The observation space's bounds, from the environment or the model; None where neither is here."""
    spec, _ = _environment(source.env)
    if spec is not None:
        return spec.obs_low, spec.obs_high
    return source.obs_ranges


def _recorded(env: EnvLike | None) -> EnvSpec | None:
    """The environment's spec in a form that can be saved, to make it again elsewhere."""
    if isinstance(env, EnvSpec):
        return env
    spec, _ = _environment(env)
    return EnvSpec.from_json(to_json(spec.env_spec)) if spec else None


def _environment(env: EnvLike | None) -> tuple[Spec | None, float | None]:
    """Spaces and control period, where the environment is known and installed."""
    if env is None:
        return None, None
    try:
        spec = spec_of(env)
    except (DamperError, ImportError, gymnasium.error.Error):
        return None, find_task(env.id).period if isinstance(env, EnvSpec) and missing_part(env) is None else None
    return spec, spec.period or find_task(spec.id).period


def _json(values: Iterable[Any]) -> list[float | None]:
    """Numbers for JSON, which has no infinity."""
    return [float(value) if np.isfinite(value) else None for value in values]
