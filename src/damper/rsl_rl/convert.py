"""rsl_rl's actors as layers and statistics, for files that run anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rsl_rl.models import MLPModel
from rsl_rl.modules import GaussianDistribution
from tensordict import TensorDict
from torch import nn

from damper.activations import EXPORTABLE_NAME_BY_MODULE, known_modules
from damper.errors import DamperError

Array = NDArray[Any]


class Actor(NamedTuple):
    """An rsl_rl actor made of linear layers.

    Attributes:
        layers: weights ``[in, out]`` and biases.
        activation: the activation between them.
        actions: dimension of the actions.
        statistics: mean and scale of the normaliser, which computes ``(s − mean) · scale``; None
            without.
    """

    layers: list[tuple[Array, Array]]
    activation: str
    actions: int
    statistics: tuple[Array, Array] | None


def read_actor(actor: Any) -> Actor:
    """Read an ``MLPModel`` with a Gaussian of state-independent deviation; raises for others."""
    if type(actor) is not MLPModel or type(actor.distribution) not in (
        GaussianDistribution,
        type(None),
    ):
        raise DamperError(
            "the actor must be rsl_rl's MLPModel with a GaussianDistribution, but is "
            f"{type(actor).__name__} with {type(actor.distribution).__name__}: use rsl_rl's own "
            "export for others."
        )
    linears = [module for module in actor.mlp if isinstance(module, nn.Linear)]
    between = {type(module) for module in actor.mlp} - {nn.Linear}
    if not between <= set(EXPORTABLE_NAME_BY_MODULE) or len(between) != 1:
        names = ", ".join(sorted(kind.__name__ for kind in between))
        known = known_modules(EXPORTABLE_NAME_BY_MODULE)
        raise DamperError(f"activation must be {known}, but is {names}: use rsl_rl's own export.")
    layers = [
        tuple(t.detach().cpu().numpy() for t in (layer.weight.T, layer.bias)) for layer in linears
    ]
    statistics = None
    if actor.obs_normalization:
        normaliser = actor.obs_normalizer
        mean, std = (tensor.double().cpu().numpy() for tensor in (normaliser.mean, normaliser.std))
        statistics = mean, 1.0 / (std + normaliser.eps)
    activation = EXPORTABLE_NAME_BY_MODULE[between.pop()]
    return Actor(layers, activation, linears[-1].out_features, statistics)  # type: ignore[arg-type]


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


def facts(source: Any, actor: Any) -> dict[str, Any]:
    """Facts about the actor's training; rsl_rl's own PPO does not know what trained its weights."""
    algorithm = getattr(source, "alg", source)
    unknown: dict[str, Any] = {"method": None, "settings": {}}
    record = algorithm.training_record() if hasattr(algorithm, "training_record") else unknown
    return {
        "backbone": "ppo",
        **record,
        "obs_groups": list(actor.obs_groups),
        "iterations": getattr(source, "current_learning_iteration", None),
    }
