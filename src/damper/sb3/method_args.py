"""Which method, with which settings, and what it needs from SB3's spaces and buffers: mistakes told before training."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from damper.errors import DamperError
from damper.methods import METHODS, Method, components, compose, find_method, setting_hint
from damper.rules import combine_reported
from damper.rules._span import Rule


def choose(
    method: str | Method, rule: str | Rule | None = None, auxiliary: str | None = None, critic: str | None = None
) -> str | Method:
    """The method with some of its parts exchanged: its name where a name tells it all."""
    parts = {"auxiliary": auxiliary, "critic": critic, "rule": None if callable(rule) else rule}
    given = {name: part for name, part in parts.items() if part is not None}
    found = find_method(method)
    if given:
        own = components(found.name)._asdict()
        if own["auxiliary"] is None:
            raise DamperError(
                f"{' and '.join(given)} must change a method that has an actor loss, but method {found.name!r} has "
                "none: leave method at 'damper'."
            )
        found = compose(**{**own, **given})
        method = found.name
    if callable(rule):
        return replace(found, name=getattr(rule, "__name__", "custom"), rule=rule)  # type: ignore[arg-type]
    return method


def is_setting(name: str, method: Method) -> bool:
    """Whether the method, or any other one, has a setting of that name."""
    return any(name in one.settings() for one in (method, *METHODS.values()))


def check_names(method: Method, settings: Mapping[str, Any], arguments: Iterable[str] = ()) -> None:
    """Refuse what neither SB3's class nor the method knows."""
    known = method.settings()
    for name in settings:
        if name not in known:
            hint = setting_hint(name, method, arguments)
            raise DamperError(f"{name} is neither an argument of SB3's class nor a setting of the method: {hint}")


def check_rule(method: Method, settings: Mapping[str, Any]) -> None:
    """Let the rule refuse its settings now instead of at the first update."""
    if method.rule:
        pair = torch.eye(2)
        # MetaBalance's sizes fit the actor, not this pair.
        fitting = {name: value for name, value in settings.items() if name != "sizes"}
        combine_reported(method.rule, pair[0], pair[1], None, **fitting)


def check_inputs(method: Method, settings: Mapping[str, Mapping[str, Any]], model: Any) -> None:
    """Refuse observations and buffers that the method's losses cannot use."""
    space = model.observation_space
    numbers = isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if any(noise.like == "obs" for noise in method.noise.values()) and not numbers:
        raise DamperError(
            f"method {method.name!r} moves observations by small amounts, so they must be a Box of floats, but the "
            f"observation space is {space}: choose a method that compares given states, such as 'damper'."
        )
    masked = settings["actor"].get("mask_terminal") and not method.critic
    if method.losses and getattr(model, "optimize_memory_usage", False) and not masked:
        raise DamperError(
            f"optimize_memory_usage must be False with method {method.name!r}: that buffer keeps no true observation "
            "at an episode's end, and this method does not leave those steps out."
        )
    activation = getattr(model.policy, "activation_fn", None)
    if method.critic is not None and method.critic is METHODS["pave"].critic and activation is nn.ReLU:
        warnings.warn(
            "PAVE's curvature term does nothing on ReLU critics, which have no second derivative: "
            "policy_kwargs={'activation_fn': torch.nn.SiLU} is what it was published with.",
            stacklevel=2,
        )
