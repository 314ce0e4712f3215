"""P actors, and P pairs of critics, as stacked networks with their weights bound."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from damper.activations import ACTIVATIONS
from damper.engine.networks.layout import Weights
from damper.errors import DamperError

LOG_STD_RANGE = (-20.0, 2.0)  # as in SB3's SAC
MIN_BATCHED_OUTPUTS = 16  # with at least this many outputs, a CPU multiplies all networks at once
MISSING_HEAD_MESSAGES = {
    "log_std": "this loss needs a stochastic actor: use backbone='sac'.",
    "prediction": "this loss needs the actor's second head: set prediction=True in its Loss.",
}


def linear(x: Tensor, layer: tuple[Tensor, Tensor]) -> Tensor:
    """``x W + b`` for stacked inputs ``[M, B, in]``."""
    weight, bias = layer
    if x.is_cpu and weight.shape[-1] < MIN_BATCHED_OUTPUTS:
        # With few columns, a batched product is several times slower than separate ones.
        inputs, weights = x.unbind(), weight.mT.contiguous().unbind()
        networks = zip(inputs, weights, bias.squeeze(1).unbind(), strict=True)
        return torch.stack([F.linear(*network) for network in networks])
    if x.is_cpu:
        return torch.baddbmm(bias, x, weight)
    # On a GPU baddbmm first copies the bias; an addition is fused with the activation.
    return torch.bmm(x, weight) + bias


def check_head(name: str, heads: Container[str]) -> None:
    """Raise for a head that the actor does not have."""
    if name not in heads:
        raise DamperError(MISSING_HEAD_MESSAGES[name])


class StackedActor:
    """P actors with their weights bound (a ``damper.interface.Policy``).

    Losses share the features and actions of an observation. There are a handful, compared by
    identity: torch.compile can trace ``is``, but not ``id``. ``average`` is the Polyak copy, for
    ``averaged_prediction``.
    """

    def __init__(
        self, weights: Weights, activation: str, average: StackedActor | None = None
    ) -> None:
        self.weights, self.average = weights, average
        self.activation = ACTIVATIONS[activation].function
        self._features: list[tuple[Tensor, Tensor]] = []
        self._actions: list[tuple[Tensor, Tensor]] = []

    @property
    def stochastic(self) -> bool:
        """Whether the actor has a distribution."""
        return "log_std" in self.weights

    def features(self, obs: Tensor) -> Tensor:
        """Output of the last hidden layer."""
        for seen, features in self._features:
            if seen is obs:
                return features
        x = obs
        for name, layer in self.weights.items():
            if name.startswith("trunk."):
                x = self.activation(linear(x, layer))
        self._features.append((obs, x))
        return x

    def __call__(self, obs: Any) -> Tensor:
        """``μ(s) = tanh(W h(s) + b)``."""
        for seen, action in self._actions:
            if seen is obs:
                return action
        action = torch.tanh(linear(self.features(obs), self.weights["mu"]))
        self._actions.append((obs, action))
        return action

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh; the latter clamped to [-20, 2]."""
        check_head("log_std", self.weights)
        h = self.features(obs)
        mean, log_std = (linear(h, self.weights[head]) for head in ("mu", "log_std"))
        return mean, log_std.clamp(*LOG_STD_RANGE)

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
    """P pairs of critics with their weights bound, stacked over ``2P`` networks.

    A ``damper.interface.CriticWithActionGradients``. Rows 2j and 2j+1 belong to agent j.
    """

    def __init__(self, weights: Weights, activation: str) -> None:
        self.weights, self.activation = weights, ACTIVATIONS[activation]

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """Values ``[P, 2, B]`` at ``[P, B, d]`` and actions ``[P, B, A]`` or ``[P, 2, B, A]``."""
        if action.ndim == obs.ndim:
            x = torch.cat((obs, action), -1).unsqueeze(1).expand(-1, 2, -1, -1)
        else:
            x = torch.cat((obs.unsqueeze(1).expand(-1, 2, -1, -1), action), -1)
        return self._forward(self.weights, x.flatten(0, 1)).unflatten(0, (-1, 2))

    def first(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1`` alone, ``[P, B]``."""
        half = {name: (weight[::2], bias[::2]) for name, (weight, bias) in self.weights.items()}
        return self._forward(half, torch.cat((obs, action), -1))

    def _forward(self, weights: Weights, x: Tensor) -> Tensor:
        for name, layer in weights.items():
            x = linear(x, layer)
            x = x if name == "q" else self.activation.function(x)
        return x.squeeze(-1)

    def action_gradients(
        self, observations: Sequence[Tensor], action: Tensor, v: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """``∇ₐQ_j`` at each observation, and ``vᵀ∇²ₐₐQ_j v`` at the first.

        They are ``[P, 2, B, A]`` and ``[P, 2, B]``. A critic of L hidden layers is
        ``z_1 = x W_1 + b_1``, ``h_l = f(z_l)``, ``z_{l+1} = h_l W_{l+1} + b_{l+1}`` and
        ``q = h_L w + b``. Its derivatives with respect to the action are written out layer by
        layer, as products and sums like the critic itself, so that a loss on them is differentiated
        only once, with respect to the parameters.

        The forward pass runs x and, along ``a + t v``, its tangents: ``z_1' = v W_1[a]``,
        ``h_l' = f'(z_l) z_l'`` and ``z_{l+1}' = h_l' W_{l+1}``, where ``W_1[a]`` are the actions'
        rows. The backward pass runs the hidden units' gradients, ``u_L = w`` and
        ``u_{l-1} = (u_l f'(z_l)) W_lᵀ``, and ends with ``∇ₐq = (u_1 f'(z_1)) W_1[a]ᵀ``. The second
        derivative along the line is ``vᵀ∇²ₐₐq v = Σ_l u_l · (f''(z_l) z_l'²)``.
        """
        x = torch.cat([torch.cat((obs, action), -1) for obs in observations], -2)
        x, v = (rows.unsqueeze(1).expand(-1, 2, -1, -1).flatten(0, 1) for rows in (x, v))
        *hidden, (w, _) = self.weights.values()
        R, (B, A) = x.shape[1], v.shape[1:]
        activation_grads, curvature_terms = [], []
        h, dh = x, F.pad(v, (x.shape[-1] - A, 0))
        for W, b in hidden:
            # Tangents are more rows of the same product.
            z, dz = torch.bmm(torch.cat((h, dh), 1), W).split((R, B), 1)
            z = z + b
            h, activation_grad = self.activation.with_grad(z)
            dh = activation_grad[:, :B] * dz
            activation_grads.append(activation_grad)
            curvature_terms.append(self.activation.second_derivative(z[:, :B]) * dz.square())
        u, curvature = w.mT, torch.zeros_like(v[..., 0])
        for i in reversed(range(len(hidden))):
            W = hidden[i][0] if i else hidden[i][0][:, -A:]
            curvature = curvature + (u[:, :B] * curvature_terms[i]).sum(-1)
            u = torch.bmm(u * activation_grads[i], W.mT)
        gradients = u.unflatten(0, (-1, 2)).chunk(len(observations), -2)
        return list(gradients), curvature.unflatten(0, (-1, 2))
