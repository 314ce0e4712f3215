"""Check before training that SB3's policy, spaces, buffers, critics and observations fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from damper.errors import DamperError
from damper.methods import METHODS, Method
from damper.sb3.convert import sees_normalised

# SB3's policy classes by name, because sb3-contrib, which the last is of, need not be installed.
_ALGORITHMS = {
    "TD3Policy": "TD3 or DDPG",
    "SACPolicy": "SAC",
    "ActorCriticPolicy": "PPO",
    "TQCPolicy": "TQC",
    "DQNPolicy": "DQN",
    "RecurrentActorCriticPolicy": "RecurrentPPO",
}


def check_policy(model: Any) -> None:
    """Raise for a policy class of another algorithm, as in another algorithm's zip."""
    bases = {base.__name__ for base in model.policy_class.__mro__}
    expected = {base.__name__ for own in model.policy_aliases.values() for base in own.__mro__}
    if others := _ALGORITHMS.keys() & bases - expected:
        raise DamperError(
            f"policy must be made for {type(model).__name__}, but {model.policy_class.__name__} is "
            f"for {_ALGORITHMS[others.pop()]}: use that class, to load its zip too."
        )


def check_normalisation(model: Any) -> None:
    """Raise where a trained model would go on with observations normalised otherwise."""
    before, env = getattr(model, "norm_obs", None), model.get_env()
    if before is None or env is None or model._n_updates == 0:
        return
    now = sees_normalised(model)
    requirement = "the environment must give observations as the model was trained on them"
    fix = "to start on others, make a new model and call its set_parameters(path)."
    if before != now:
        kinds = {True: "normalised by VecNormalize", False: "as the environment returns them"}
        change = "wrap it in VecNormalize.load(statistics, env)" if before else "leave it out"
        raise DamperError(
            f"{requirement}, {kinds[before]}, but they come {kinds[now]}: {change}; {fix}"
        )
    if now and _is_fresh(model.get_vec_normalize_env()):
        raise DamperError(
            f"{requirement}, but VecNormalize has seen none yet: use VecNormalize.load(statistics, "
            f"env); {fix}"
        )


def _is_fresh(env: Any) -> bool:
    """Whether VecNormalize's statistics are of no more than the observations of one reset."""
    statistics = env.obs_rms.values() if isinstance(env.obs_rms, dict) else [env.obs_rms]
    return any(part.count < env.num_envs + 1 for part in statistics)


def check_inputs(method: Method, settings: Mapping[str, Mapping[str, Any]], model: Any) -> None:
    """Raise for observations, buffers and critics that the method's losses cannot use."""
    space = model.observation_space
    numbers = isinstance(space, gymnasium.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if any(noise.like == "obs" for noise in method.noise.values()) and not numbers:
        raise DamperError(
            f"method {method.name!r} perturbs observations, so they must be a Box of floats, but "
            f"the observation space is {space}: choose a method that does not perturb them, such "
            "as 'damper'."
        )
    masked = settings["actor"].get("mask_terminal") and not method.critic
    if method.losses and getattr(model, "optimize_memory_usage", False) and not masked:
        raise DamperError(
            f"optimize_memory_usage must be False with method {method.name!r}: such a buffer does "
            "not store an episode's true final observation, and this method does not leave those "
            "steps out."
        )
    if method.critic is None or method.critic is not METHODS["pave"].critic:
        return
    if model.critic.n_critics != 2:
        raise DamperError(
            f"n_critics must be 2 for method {method.name!r}, whose critic loss is made for two "
            f"critics, but is {model.critic.n_critics}: give policy_kwargs={{'n_critics': 2}}."
        )
    if getattr(model.policy, "activation_fn", None) is nn.ReLU:
        warnings.warn(
            "PAVE's curvature term does nothing on ReLU critics, which have no second derivative: "
            "use policy_kwargs={'activation_fn': torch.nn.SiLU}, as published.",
            stacklevel=2,
        )
