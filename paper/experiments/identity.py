"""An agent's identity: every setting and simulator version that can change its result."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import gymnasium

from damper.engine.custom_code import identify
from damper.engine.settings import resolve
from damper.methods import Method, find_method
from damper.presets import preset
from damper.provenance import canonical
from damper.settings import deciding
from damper.tasks import find_task, recorded_name

# Settings of methods added after the first records, with the values of those records, at which
# identities leave them out.
ADDED_TO_METHODS = {"units": "policy"}


def identity(
    settings: Mapping[str, Any],
    agent: Mapping[str, Any],
    physics: Mapping[str, str],
    episodes: int,
    custom_code: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """An agent's identity as plain data.

    ``settings`` and ``custom_code`` are its population's, as a manifest has them, ``agent`` its row
    (seed and what differs between agents), ``physics`` the versions of its simulator.
    """
    agent_settings = {name: agent.get(name, value) for name, value in settings.items()}
    chosen = agent_settings["method"]
    given = {**settings["method_settings"], **agent}
    method = {n: given.get(n, value) for n, value in find_method(chosen).settings().items()}
    backbone = settings["backbone"]
    facts = {
        "task": recorded_name(settings["env"]),
        "backbone": backbone,
        "method": chosen,
        "method_settings": _without_added(method, ADDED_TO_METHODS),
        "seed": agent["seed"],
        "protocol": settings["protocol"],
        "training": deciding(agent_settings, backbone, "training"),
        "numerics": {name: agent_settings[name] for name in ("dtype", "tf32")},
        "backend": agent_settings["backend"],
        "physics": dict(physics),
        "episodes": episodes,
    }
    if settings.get("env_kwargs"):
        facts["env_kwargs"] = settings["env_kwargs"]
    if code := _own_code(custom_code, find_method(chosen)) if "method" in agent else custom_code:
        facts["custom_code"] = code
    return canonical(facts)


def _own_code(custom_code: Mapping[str, str], method: Method) -> dict[str, str]:
    """The part of a population's custom code that one of its methods runs."""
    functions = method.functions
    shipped = {part: identify(f) for part, f in functions.items()} if method.is_shipped else {}
    used = {part: code for part, code in custom_code.items() if part == "env" or part in functions}
    return {part: code for part, code in used.items() if shipped.get(part) != code}


def _without_added(settings: Mapping[str, Any], first_values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out settings that were added later and have the value of the first records."""
    return {n: v for n, v in settings.items() if n not in first_values or v != first_values[n]}


@cache
def published_settings(method: str, task: str, backbone: str) -> Mapping[str, Any]:
    """All of a method's settings, with the paper's values for a task."""
    settings = {**find_method(method).settings(), **preset(method, task, backbone)}
    return canonical(_without_added(settings, ADDED_TO_METHODS))


def physics(env: str, backend: str, versions: Mapping[str, str]) -> dict[str, str]:
    """Versions of an environment's simulator: EnvPool's own engines, or the installed ones."""
    names = ["envpool"]
    if backend != "envpool":
        names = ["gymnasium", *_physics_engine(find_task(env).gymnasium_id)]
    return {name: versions.get(name, "not installed") for name in names}


def _physics_engine(gymnasium_id: str) -> list[str]:
    try:
        entry = str(gymnasium.spec(gymnasium_id).entry_point)
    except gymnasium.error.Error:
        return []  # making the environment raises the error for a wrong id
    return [name for name in ("mujoco", "box2d") if f".{name}." in entry]


def deviations(agent_identity: Mapping[str, Any]) -> dict[str, Any]:
    """The training settings of an agent that differ from its protocol and the paper's budget."""
    names = ("task", "backbone", "method", "training", "seed", "protocol")
    task, backbone, method, training, seed, protocol = (agent_identity[name] for name in names)
    budget = find_task(task).steps
    steps = training["steps"] if budget is None else budget
    published = resolve(task, backbone, method, (seed,), steps, protocol).record()
    if budget is None:
        published["steps"] = None
    return {n: value for n, value in training.items() if canonical(published[n]) != value}
