"""The contract of an exported policy, as JSON: what a program that runs it must know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from damper.engine.envs.env_spec_json import missing_part, to_json
from damper.export.files import BATCH, INPUT, OUTPUT
from damper.export.network import Network
from damper.policies.loaded import LoadedPolicy
from damper.policies.recorded import known_spec
from damper.provenance import versions
from damper.tasks import find_task

FORMAT = "damper-policy-1"


def make_contract(
    policy: LoadedPolicy, network: Network, smoothness: dict[str, Any] | None
) -> dict[str, Any]:
    """The contract: names, shapes, ranges, control period, smoothness and origin."""
    ranges, spec, env = observation_ranges(policy), known_spec(policy.env), policy.env
    if not isinstance(env, EnvSpec):  # in a form that can be saved, to make it again elsewhere
        env = EnvSpec.from_json(to_json(spec.env_spec)) if spec else None
    complete = env is not None and missing_part(env) is None
    # Where the simulator is not installed, a known task's period is still known.
    usual = find_task(env.id).period if env and (spec or complete) else None
    return {
        "format": FORMAT,
        "env": env.id if env and complete else None,
        "env_spec": to_json(env) if env else None,
        "deterministic": True,
        "observation": {
            **_tensor(INPUT, network.inputs, *(ranges or (None, None))),
            "order": "as the environment returns it",
            "normalisation": "inside" if policy.normaliser else "none",
        },
        "action": _tensor(OUTPUT, network.outputs, np.ravel(policy.low), np.ravel(policy.high)),
        "control_period_seconds": spec.period if spec and spec.period else usual,
        "smoothness": smoothness,
        "training": policy.facts,
        "versions": versions(),
    }


def observation_ranges(policy: LoadedPolicy) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The observation space's bounds, from the environment or the model; None without both."""
    spec = known_spec(policy.env)
    return (spec.obs_low, spec.obs_high) if spec else policy.obs_ranges


def _tensor(name: str, size: int, *bounds: NDArray[Any] | None) -> dict[str, Any]:
    """What a contract says of an input or output, given its lower and upper bounds."""
    low, high = (None if bound is None else _numbers(bound) for bound in bounds)
    described = {"name": name, "dtype": "float32", "shape": [BATCH, size]}
    return {**described, "low": low, "high": high}


def _numbers(values: Iterable[Any]) -> list[float | None]:
    """Numbers for JSON, which has no infinity."""
    return [float(value) if np.isfinite(value) else None for value in values]
