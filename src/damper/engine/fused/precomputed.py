"""Policies and critics made of precomputed outputs, so that losses share passes.

A loss that reads outputs only (``Loss.reads_outputs_only``) runs twice. First every output is zero,
and the inputs that it needs are collected. The network then runs once on all of them, and in its
second run the loss is differentiated with respect to the outputs. ``torch.compile`` removes the
unused results of the first run as dead code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.engine.networks.stacked import LOG_STD_RANGE, check_head

Key = tuple[Any, ...]  # the inputs of one evaluation
Source = Callable[..., Tensor]  # maps inputs to a network's outputs


class InputCollector:
    """Returns zeros, and collects the inputs of a loss; collectors may share ``inputs``.

    ``shape`` maps inputs to an output's shape; ``order`` holds this loss's indices.
    """

    def __init__(self, inputs: list[Key], shape: Callable[..., tuple[int, ...]]) -> None:
        self.inputs, self.shape = inputs, shape
        self.order: list[int] = []

    def __call__(self, *key: Tensor) -> Tensor:
        """Collect this input and return zeros of its output's shape."""
        index = index_or_append(self.inputs, key)
        # Several losses share the inputs; this one's cotangents come back in its own order.
        if index not in self.order:
            self.order.append(index)
        return key[0].new_zeros(self.shape(*key))


class PrecomputedOutputs:
    """Returns the k-th output for the k-th different input, in ``InputCollector``'s order."""

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self.outputs = outputs
        self.inputs: list[Key] = []

    def __call__(self, *key: Tensor) -> Tensor:
        """The output for this input."""
        return self.outputs[index_or_append(self.inputs, key)]


class LinearizedCritic:
    """A critic to first order in the action: ``q + ⟨∂q/∂a, a − stopgrad a⟩``.

    Values are replayed in the order of the calls, so a loss must ask in the same order every time.
    ``evaluate`` gives values ``[..., B]`` and gradients by the action, ``[..., B, A]``.
    """

    def __init__(self, evaluate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        self.evaluate = evaluate
        self.evaluated: list[tuple[Tensor, Tensor]] = []

    def __call__(self, obs: Tensor, action: Tensor) -> Tensor:
        """Evaluate the critic; values and gradients are saved for ``linearized``."""
        self.evaluated.append(self.evaluate(obs, action))
        return self.evaluated[-1][0]

    def linearized(self) -> Source:
        """The same values in the same order, differentiable with respect to the action."""
        evaluated = iter(self.evaluated)

        def value_at(obs: Tensor, action: Tensor) -> Tensor:
            value, gradient = next(evaluated)
            moved = action - action.detach()
            if gradient.ndim > moved.ndim:
                moved = moved.unsqueeze(-3)  # both critics share the action
            return value + (gradient * moved).sum(-1)

        return value_at


class PolicyFromOutputs:
    """A ``damper.interface.Policy`` whose outputs, all heads concatenated, come from ``source``.

    ``average`` gives the outputs of the Polyak average.
    """

    def __init__(self, heads: Sequence[str], source: Source, average: Source | None = None) -> None:
        self.heads, self.source, self.average = tuple(heads), source, average

    @property
    def stochastic(self) -> bool:
        """Whether the actor has a distribution."""
        return "log_std" in self.heads

    def _head(self, name: str, outputs: Tensor) -> Tensor:
        check_head(name, self.heads)
        return outputs.chunk(len(self.heads), -1)[self.heads.index(name)]

    def __call__(self, obs: Any) -> Tensor:
        """``μ(s)``."""
        return torch.tanh(self._head("mu", self.source(obs)))

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh."""
        outputs = self.source(obs)
        return self._head("mu", outputs), self._head("log_std", outputs).clamp(*LOG_STD_RANGE)

    def prediction(self, obs: Any) -> Tensor:
        """Output of the second head."""
        return self._head("prediction", self.source(obs))

    def averaged_prediction(self, obs: Any) -> Tensor:
        """Output of the Polyak average's second head."""
        assert self.average is not None
        return self._head("prediction", self.average(obs))


class CriticFromValues:
    """A ``damper.interface.Critic`` whose values come from functions.

    ``both`` gives ``[P, 2, B]``, ``first`` ``[P, B]``; if left out, both are evaluated.
    """

    def __init__(self, both: Source, first: Source | None = None) -> None:
        self.both = both
        # Not `first or`: PyTorch 2.11 cannot compile a function's truth value.
        self.first = (lambda obs, action: both(obs, action)[:, 0]) if first is None else first

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1, Q_2``."""
        return self.both(obs, action)


def index_or_append(inputs: list[Key], key: Key) -> int:
    """The index of these tensors in the list, appended if new."""
    # By `is`: torch.compile cannot trace `id`, and equal tensors may be different inputs.
    for i, other in enumerate(inputs):
        if all(a is b for a, b in zip(key, other, strict=True)):
            return i
    inputs.append(key)
    return len(inputs) - 1
