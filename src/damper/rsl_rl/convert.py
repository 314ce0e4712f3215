"""rsl_rl's policies, for ``damper.evaluate`` and ``damper.export``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rsl_rl.models import MLPModel
from rsl_rl.modules import GaussianDistribution
from tensordict import TensorDict
from torch import nn

from damper.activations import EXPORTABLE_NAME_BY_MODULE, known_modules
from damper.errors import DamperError
from damper.policies.loaded import LinearActor, LoadedPolicy, Request
from damper.policies.normaliser import Normaliser

Array = NDArray[Any]


def open_runner(source: Any, request: Request) -> list[LoadedPolicy]:
    """The policy of an rsl_rl runner, algorithm or actor, with its normaliser inside.

    Observations are the actor's groups, concatenated.
    """
    algorithm = getattr(source, "alg", source)
    actor = getattr(algorithm, "_raw_actor", getattr(algorithm, "actor", algorithm))
    layers = read_actor(actor)
    actions = len(layers.layers[-1][1])
    unbounded = np.full(actions, np.inf)
    # rsl_rl's own PPO does not know what trained its weights.
    unknown: dict[str, Any] = {"method": None, "settings": {}}
    record = algorithm.training_record() if hasattr(algorithm, "training_record") else unknown
    facts = {
        "backbone": "ppo",
        **record,
        "obs_groups": list(actor.obs_groups),
        "iterations": getattr(source, "current_learning_iteration", None),
    }
    policy = LoadedPolicy(
        act(actor),
        facts=facts,
        actor=layers,
        low=-unbounded,
        high=unbounded,
        normaliser=read_normaliser(actor),
        sizes=(len(layers.layers[0][0]), actions),
    )
    return [policy]


def read_actor(actor: Any) -> LinearActor:
    """Read an ``MLPModel`` with a Gaussian of state-independent deviation; raises for others."""
    distributions = (GaussianDistribution, type(None))
    if type(actor) is not MLPModel or type(actor.distribution) not in distributions:
        raise DamperError(
            "the actor must be rsl_rl's MLPModel with a GaussianDistribution, but is "
            f"{type(actor).__name__} with {type(actor.distribution).__name__}: use rsl_rl's own "
            "export for others."
        )
    between = {type(module) for module in actor.mlp} - {nn.Linear}
    if not between <= set(EXPORTABLE_NAME_BY_MODULE) or len(between) != 1:
        names = ", ".join(sorted(kind.__name__ for kind in between))
        choices = known_modules(EXPORTABLE_NAME_BY_MODULE)
        raise DamperError(f"activation must be {choices}, but is {names}: use rsl_rl's own export.")
    layers = [
        (module.weight.T.detach().cpu().numpy(), module.bias.detach().cpu().numpy())
        for module in actor.mlp
        if isinstance(module, nn.Linear)
    ]
    return LinearActor(layers, EXPORTABLE_NAME_BY_MODULE[between.pop()], squash=False)


def read_normaliser(actor: Any) -> Normaliser | None:
    """The actor's statistics, ``(s − mean) / (std + ε)`` without a clip; None without any."""
    if not actor.obs_normalization:
        return None
    statistics = actor.obs_normalizer
    mean, std = (tensor.double().cpu().numpy() for tensor in (statistics.mean, statistics.std))
    return Normaliser(mean, 1.0 / (std + statistics.eps), np.inf)


def act(actor: Any) -> Callable[[Array], NDArray[np.float32]]:
    """A function from observations, the actor's groups concatenated, to rsl_rl's mean actions."""
    weights = next(actor.parameters())
    # Any split will do: rsl_rl concatenates the groups again.
    groups, width = actor.obs_groups, actor.obs_dim

    @torch.no_grad()
    def mean(obs: Array) -> NDArray[np.float32]:
        inputs = torch.as_tensor(obs, dtype=weights.dtype, device=weights.device)
        parts = inputs.split([width] + [0] * (len(groups) - 1), -1)
        return actor(TensorDict(dict(zip(groups, parts, strict=True)), len(inputs))).cpu().numpy()

    return mean
