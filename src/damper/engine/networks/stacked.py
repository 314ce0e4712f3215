"""P actors, and P pairs of critics, as stacked networks with their weights bound; one set of kernels runs them all."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.activations import ACTIVATIONS
from damper.engine.kernels.layer import linear
from damper.engine.networks.action_gradients import action_gradients, by_agent, repeat_action
from damper.engine.networks.layout import Weights
from damper.errors import DamperError

LOG_STD_RANGE = (-20.0, 2.0)  # as in SB3's SAC
MISSING_HEAD_MESSAGES = {
    "log_std": "this loss needs a stochastic actor: use backbone='sac'.",
    "prediction": "this loss needs the actor's second head: set prediction=True in its Loss.",
}


def check_head(name: str, heads: Container[str]) -> None:
    """Raise for a head that the actor does not have."""
    if name not in heads:
        raise DamperError(MISSING_HEAD_MESSAGES[name])


class StackedActor:
    """P actors with their weights bound (a ``damper.interface.Policy``)."""

    def __init__(
        self, weights: Weights, activation: str, average: StackedActor | None = None
    ) -> None:
        """``average`` is the Polyak copy, for ``averaged_prediction``."""
        self.weights, self.activation, self.average = (
            weights,
            ACTIVATIONS[activation].function,
            average,
        )
        self._features: list[tuple[Tensor, Tensor]] = []
        self._actions: list[tuple[Tensor, Tensor]] = []

    @property
    def stochastic(self) -> bool:
        """Whether the actor has a distribution."""
        return "log_std" in self.weights

    def _shared(
        self, cache: list[tuple[Tensor, Tensor]], obs: Tensor, compute: Callable[[Tensor], Tensor]
    ) -> Tensor:
        # A handful of entries, compared by identity: torch.compile can trace `is`, but not `id`.
        for known, value in cache:
            if known is obs:
                return value
        cache.append((obs, compute(obs)))
        return cache[-1][1]

    def _trunk(self, obs: Tensor) -> Tensor:
        x = obs
        for name, layer in self.weights.items():
            if name.startswith("trunk."):
                x = self.activation(linear(x, layer))
        return x

    def features(self, obs: Tensor) -> Tensor:
        """Output of the last hidden layer."""
        return self._shared(self._features, obs, self._trunk)

    def __call__(self, obs: Any) -> Tensor:
        """``μ(s) = tanh(W h(s) + b)``."""
        return self._shared(
            self._actions, obs, lambda s: torch.tanh(linear(self.features(s), self.weights["mu"]))
        )

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh; the latter clamped to [-20, 2]."""
        check_head("log_std", self.weights)
        h = self.features(obs)
        return linear(h, self.weights["mu"]), linear(h, self.weights["log_std"]).clamp(
            *LOG_STD_RANGE
        )

    def prediction(self, obs: Any) -> Tensor:
        """Output of the second head, without activation: the loss squashes it or not."""
        check_head("prediction", self.weights)
        return linear(self.features(obs), self.weights["prediction"])

    def averaged_prediction(self, obs: Any) -> Tensor:
        """The Polyak copy's prediction, without gradient."""
        if self.average is None:
            raise DamperError(
                "this loss needs the actor's Polyak average: set prediction=True in its Loss."
            )
        with torch.no_grad():
            return self.average.prediction(obs)


class StackedCritic:
    """P pairs of critics with their weights bound (a ``damper.interface.CriticWithActionGradients``).

    Rows 2j and 2j+1 belong to agent j.
    """

    def __init__(self, weights: Weights, activation: str) -> None:
        """``weights`` are stacked over ``2P`` networks."""
        self.weights, self.activation, self._name = (
            weights,
            ACTIVATIONS[activation].function,
            activation,
        )

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """``[P, 2, B]`` from observations ``[P, B, d]`` and actions ``[P, B, A]`` or ``[P, 2, B, A]``."""
        if action.ndim == obs.ndim:
            x = torch.cat((obs, action), -1).unsqueeze(1).expand(-1, 2, -1, -1)
        else:
            x = torch.cat((obs.unsqueeze(1).expand(-1, 2, -1, -1), action), -1)
        return self._forward(self.weights, x.flatten(0, 1)).unflatten(0, (-1, 2))

    def first(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1`` alone, ``[P, B]``."""
        half = {name: (weight[::2], bias[::2]) for name, (weight, bias) in self.weights.items()}
        return self._forward(half, torch.cat((obs, action), -1))

    def action_gradients(
        self, observations: Sequence[Tensor], action: Tensor, v: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """``∇ₐQ_j`` at each observation, ``[P, 2, B, A]``, and ``vᵀ∇²ₐₐQ_j v`` at the first, ``[P, 2, B]``."""
        x = repeat_action(observations, action)
        x, v = (rows.unsqueeze(1).expand(-1, 2, -1, -1).flatten(0, 1) for rows in (x, v))
        return by_agent(
            *action_gradients(list(self.weights.values()), self._name, x, v), len(observations)
        )

    def _forward(self, weights: Weights, x: Tensor) -> Tensor:
        for name, layer in weights.items():
            x = linear(x, layer)
            x = x if name == "q" else self.activation(x)
        return x.squeeze(-1)
