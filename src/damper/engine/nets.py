"""Stacked networks: P of them with one set of kernels, their parameters rows of one flat matrix ``[P, n]``.

Flat rows make per-agent dots, norms, optimiser steps and Polyak averages single operations; layers are views into the
rows, so nothing is copied to run them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from damper.engine.dense import Dense, linear
from damper.engine.field import action_field, field_inputs, of_twins
from damper.engine.streams import Streams
from damper.errors import DamperError

Weights = dict[str, tuple[Tensor, Tensor]]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "relu": F.relu, "tanh": torch.tanh}
LOG_STD_RANGE = (-20.0, 2.0)  # as SB3's SAC
MISSING = {
    "log_std": "this loss needs a stochastic actor: use backbone='sac'.",
    "prediction": "this loss needs the actor's second head, which its Loss must ask for: prediction=True.",
}


@dataclass(frozen=True)
class Layout:
    """Which linear layers a network has, (name, inputs, outputs), and where they lie in a flat row.

    Every weight and bias starts at a multiple of ``alignment`` numbers, and so does the next row: matrix kernels are
    much slower on data that is not. What lies between is zero and stays zero.
    """

    layers: tuple[tuple[str, int, int], ...]
    alignment: int = 1

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Start and length of each weight and bias, in the order of ``leaves``."""
        spans, start = [], 0
        for _, inputs, outputs in self.layers:
            for length in (inputs * outputs, outputs):
                spans.append((start, length))
                start += self._padded(length)
        return spans

    def _padded(self, length: int) -> int:
        return -(-length // self.alignment) * self.alignment

    def _gap(self, length: int) -> int:
        return self._padded(length) - length

    @cached_property
    def size(self) -> int:
        """Numbers in one row."""
        return sum(self._padded(length) for _, length in self.spans)

    @cached_property
    def dense(self) -> tuple[Dense, ...]:
        """The hidden layers, then all heads as one: they share inputs and sizes, and lie evenly spaced."""
        places = [
            Dense(inputs, outputs, start, bias, outputs, gaps=(self._gap(inputs * outputs), self._gap(outputs)))
            for (_, inputs, outputs), (start, _), (bias, _) in zip(
                self.layers, self.spans[::2], self.spans[1::2], strict=True
            )
        ]
        hidden = sum(name.startswith("trunk.") for name, _, _ in self.layers)
        heads = places[hidden:]
        jump = heads[1].weight - heads[0].weight if len(heads) > 1 else 0
        return (*places[:hidden], replace(heads[0], outputs=len(heads) * heads[0].outputs, jump=jump))

    def split(self, flat: Tensor) -> Weights:
        """Views of rows ``[M, n]`` as weights ``[M, in, out]`` and biases ``[M, 1, out]``."""
        parts = iter([flat[:, start : start + length] for start, length in self.spans])
        return {name: (next(parts).unflatten(1, (a, b)), next(parts).unsqueeze(1)) for name, a, b in self.layers}

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Rows ``[M, n]`` from weights and biases, in the order of ``leaves``."""
        filler = tensors[0].new_zeros(tensors[0].shape[0], self.alignment)
        parts = []
        for tensor, (_, length) in zip(tensors, self.spans, strict=True):
            parts.append(tensor.flatten(1))
            if gap := self._gap(length):
                parts.append(filler[:, :gap])
        return torch.cat(parts, 1)

    def initial(self, streams: Streams, purpose: str, dtype: torch.dtype) -> Tensor:
        """Rows ``[P, n]`` drawn as PyTorch's ``nn.Linear``: weights and biases uniform in ±1/√inputs.

        Each layer has its own stream, so that an extra head does not change the others.
        """
        parts = []
        for name, inputs, outputs in self.layers:
            draw = streams.uniform(f"init:{purpose}.{name}", 0, (inputs * outputs + outputs,), dtype)
            parts += (draw / math.sqrt(inputs)).split((inputs * outputs, outputs), 1)
        return self.join(parts)


def trunk_layers(inputs: int, hidden: Sequence[int]) -> tuple[tuple[str, int, int], ...]:
    """Hidden layers ``trunk.0``, ``trunk.1``, ..."""
    sizes = (inputs, *hidden)
    return tuple((f"trunk.{i}", a, b) for i, (a, b) in enumerate(pairwise(sizes)))


def check_head(name: str, heads: Container[str]) -> None:
    """Refuse to read a head that the actor does not have."""
    if name not in heads:
        raise DamperError(MISSING[name])


def leaves(weights: Weights) -> list[Tensor]:
    """All tensors of a split, in the flat row's order."""
    return [tensor for layer in weights.values() for tensor in layer]


def rebuild(layout: Layout, tensors: Sequence[Tensor]) -> Weights:
    """The inverse of ``leaves``."""
    return {name: (tensors[2 * i], tensors[2 * i + 1]) for i, (name, _, _) in enumerate(layout.layers)}


class StackedActor:
    """P actors with their weights bound (``damper.losses`` calls this a Policy)."""

    def __init__(
        self,
        weights: Weights,
        activation: str,
        average: StackedActor | None = None,
    ) -> None:
        """``average`` is the Polyak copy that serves ``averaged_prediction``."""
        self.weights, self.activation, self.average = weights, ACTIVATIONS[activation], average
        self._features: list[tuple[Tensor, Tensor]] = []
        self._actions: list[tuple[Tensor, Tensor]] = []

    @property
    def stochastic(self) -> bool:
        """Whether the actor has a distribution."""
        return "log_std" in self.weights

    def _shared(self, cache: list[tuple[Tensor, Tensor]], obs: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        # A handful of entries, found by identity: torch.compile follows `is`, but not `id`.
        for seen, value in cache:
            if seen is obs:
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
        """The last hidden layer."""
        return self._shared(self._features, obs, self._trunk)

    def __call__(self, obs: Any) -> Tensor:
        """``μ(s) = tanh(W h(s) + b)``."""
        return self._shared(self._actions, obs, lambda s: torch.tanh(linear(self.features(s), self.weights["mu"])))

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh; the latter clamped to [-20, 2]."""
        check_head("log_std", self.weights)
        h = self.features(obs)
        return linear(h, self.weights["mu"]), linear(h, self.weights["log_std"]).clamp(*LOG_STD_RANGE)

    def prediction(self, obs: Any) -> Tensor:
        """The second head on the last hidden layer, linear: the loss squashes it or not."""
        check_head("prediction", self.weights)
        return linear(self.features(obs), self.weights["prediction"])

    def averaged_prediction(self, obs: Any) -> Tensor:
        """The Polyak copy's prediction, without gradient."""
        if self.average is None:
            raise DamperError(
                "this loss needs the actor's Polyak average, which its Loss must ask for: prediction=True."
            )
        with torch.no_grad():
            return self.average.prediction(obs)


class StackedCritic:
    """P pairs of critics with their weights bound: rows 2j and 2j+1 belong to agent j."""

    def __init__(self, weights: Weights, activation: str) -> None:
        """Weights are stacked over ``2P`` networks."""
        self.weights, self.activation, self._name = weights, ACTIVATIONS[activation], activation

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """``[P, 2, B]`` from observations ``[P, B, d]`` and actions ``[P, B, A]`` or ``[P, 2, B, A]``."""
        if action.ndim == obs.ndim:
            x = torch.cat((obs, action), -1).unsqueeze(1).expand(-1, 2, -1, -1)
        else:
            x = torch.cat((obs.unsqueeze(1).expand(-1, 2, -1, -1), action), -1)
        values: Tensor = self._forward(self.weights, x.flatten(0, 1)).unflatten(0, (-1, 2))
        return values

    def first(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1`` alone, ``[P, B]``."""
        half = {name: (weight[::2], bias[::2]) for name, (weight, bias) in self.weights.items()}
        return self._forward(half, torch.cat((obs, action), -1))

    def action_field(self, observations: Sequence[Tensor], action: Tensor, v: Tensor) -> tuple[list[Tensor], Tensor]:
        """``∇ₐQ_j`` at each of some observations, ``[P, 2, B, A]``, and ``vᵀ∇²ₐₐQ_j v`` at the first, ``[P, 2, B]``."""
        x = field_inputs(observations, action)
        x, v = (rows.unsqueeze(1).expand(-1, 2, -1, -1).flatten(0, 1) for rows in (x, v))
        return of_twins(*action_field(list(self.weights.values()), self._name, x, v), len(observations))

    def _forward(self, weights: Weights, x: Tensor) -> Tensor:
        for name, layer in weights.items():
            x = linear(x, layer)
            x = x if name == "q" else self.activation(x)
        return x.squeeze(-1)
