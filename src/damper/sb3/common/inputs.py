"""Check before training that SB3's spaces, buffers and critics fit the method."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from damper.errors import DamperError
from damper.methods import METHODS, Method


def check_inputs(method: Method, settings: Mapping[str, Mapping[str, Any]], model: Any) -> None:
    """Raise for observations, buffers and critics that the method's losses cannot use."""
    space = model.observation_space
    numbers = isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if any(noise.like == "obs" for noise in method.noise.values()) and not numbers:
        raise DamperError(
            f"method {method.name!r} perturbs observations, so they must be a Box of floats, but "
            "the observation space "
            f"is {space}: choose a method that does not perturb them, such as 'damper'."
        )
    masked = settings["actor"].get("mask_terminal") and not method.critic
    if method.losses and getattr(model, "optimize_memory_usage", False) and not masked:
        raise DamperError(
            f"optimize_memory_usage must be False with method {method.name!r}: such a buffer does "
            "not store an "
            "episode's true final observation, and this method does not leave those steps out."
        )
    if method.critic is None or method.critic is not METHODS["pave"].critic:
        return
    if model.critic.n_critics != 2:
        raise DamperError(
            f"n_critics must be 2 for method {method.name!r}, whose critic loss is made for two "
            "critics, but is "
            f"{model.critic.n_critics}: give policy_kwargs={{'n_critics': 2}}."
        )
    if getattr(model.policy, "activation_fn", None) is nn.ReLU:
        warnings.warn(
            "PAVE's curvature term does nothing on ReLU critics, which have no second derivative: "
            "use "
            "policy_kwargs={'activation_fn': torch.nn.SiLU}, as published.",
            stacklevel=2,
        )
