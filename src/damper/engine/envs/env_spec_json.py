"""Gymnasium's ``EnvSpec`` as JSON: how files of runs and policies record their environment.

What JSON cannot describe is null: an environment's ``entry_point``, or a wrapper's ``kwargs``.
``missing_part`` says which.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from damper.tasks import find_task

UNKNOWN = "unknown"  # the id where none is known
EnvLike = str | EnvSpec | Callable[..., gymnasium.Env[Any, Any]]

# Wrappers that only observe, by the ends of their entry points; an evaluation does without them.
_PASSIVE_WRAPPERS = (
    *("stable_baselines3.common.monitor:Monitor", ":RecordEpisodeStatistics"),
    *(":RecordVideo", ":HumanRendering", ":RenderCollection"),
)


def env_spec_from_id(env: str) -> EnvSpec:
    """The spec of a task or id as it is registered here; only the id if it is not registered."""
    task = find_task(env)
    spec = copy.deepcopy(gymnasium.registry.get(task.gymnasium_id)) or EnvSpec(task.gymnasium_id)
    spec.kwargs = {**spec.kwargs, **task.kwargs}
    return spec


def env_spec_from_env(made: gymnasium.Env[Any, Any], env: EnvLike) -> EnvSpec:
    """The spec of an environment made from an id, possibly with module, a spec or a callable."""
    spec = made.spec or EnvSpec(type(made.unwrapped).__name__)
    if isinstance(env, str) and ":" in env:
        return replace(spec, id=env)
    return with_unknown_wrapper(spec, env) if callable(env) else spec


def with_unknown_wrapper(spec: EnvSpec, wrapper: Any) -> EnvSpec:
    """Mark a spec as changed by a callable or a wrapper in a way that cannot be described."""
    kind = wrapper if hasattr(wrapper, "__qualname__") else type(wrapper)
    step = WrapperSpec(kind.__name__, f"{kind.__module__}:{kind.__qualname__}", None)
    return replace(spec, additional_wrappers=(*spec.additional_wrappers, step))


def to_json(spec: EnvSpec) -> str:
    """The spec as JSON; whatever another process could not make again becomes null."""
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    described = _fits_json(kwargs)
    wrappers = [
        wrapper if _makes_again(wrapper) else replace(wrapper, kwargs=None)
        for wrapper in spec.additional_wrappers
        if not wrapper.entry_point.endswith(_PASSIVE_WRAPPERS)
    ]
    return replace(
        spec,
        entry_point=_importable(spec.entry_point) if described else None,
        vector_entry_point=None,
        kwargs=kwargs if described else {},
        additional_wrappers=tuple(wrappers),
    ).to_json()


def missing_part(spec: EnvSpec) -> str | None:
    """What is missing to make the environment again, or None."""
    for wrapper in spec.additional_wrappers:
        if wrapper.kwargs is None:
            return f"what {wrapper.name} ({wrapper.entry_point}) did to it"
    return "how it was made" if spec.entry_point is None else None


def same_task(one: EnvSpec, other: EnvSpec) -> bool:
    """Whether two specs describe the same environment: id, time limit, arguments and wrappers."""
    parts = ("id", "max_episode_steps", "kwargs", "additional_wrappers")
    first, second = (json.loads(to_json(spec)) for spec in (one, other))
    same_parts = all(first[part] == second[part] for part in parts)
    return same_parts and missing_part(one) == missing_part(other)


def _fits_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _importable(entry: Any) -> str | None:
    """The entry point as text that finds the same object in another process, or None."""
    if callable(entry):
        module, name = str(entry.__module__), getattr(entry, "__qualname__", "")
        found = getattr(sys.modules.get(module), name, None)
        entry = f"{module}:{name}" if found is entry else None
    return entry if isinstance(entry, str) and not entry.startswith("__main__:") else None


def _makes_again(wrapper: WrapperSpec) -> bool:
    """Whether entry point and arguments make the wrapper again; learnt statistics are neither."""
    described = wrapper.kwargs is not None and _fits_json(wrapper.kwargs)
    if not described or not _importable(wrapper.entry_point):
        return False
    try:
        kind: Any = load_env_creator(wrapper.entry_point)
    except (ImportError, AttributeError, ValueError):
        return False
    return not (isinstance(kind, type) and issubclass(kind, NormalizeObservation | NormalizeReward))
