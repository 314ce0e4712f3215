"""Networks read once at every input that some losses ask for, so that those losses share one pass and one way back.

A loss that reads outputs only (``Loss.reads_outputs_only``) first says at which inputs (it is answered with zeros),
then gets its answers, and is differentiated by them. Whatever of this is not used in the end, the compiler drops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.engine.networks.stacked import LOG_STD_RANGE, check_head

Source = Callable[..., Tensor]  # from inputs to a network's outputs


class InputRecorder:
    """Notes the different inputs it is asked for and answers zeros; several share one list of ``inputs``."""

    def __init__(self, inputs: list[tuple[Any, ...]], shape: Callable[..., tuple[int, ...]]) -> None:
        """``shape`` says how the answer to an input is shaped; ``order`` will hold which inputs were asked for."""
        self.inputs, self.shape = inputs, shape
        self.order: list[int] = []

    def __call__(self, *key: Tensor) -> Tensor:
        """Zeros."""
        index = position(self.inputs, key)
        if index not in self.order:
            self.order.append(index)
        return key[0].new_zeros(self.shape(*key))


class OutputReplay:
    """Gives the k-th different input the k-th answer."""

    def __init__(self, answers: Sequence[Tensor]) -> None:
        """The answers in the order of ``InputRecorder``."""
        self.answers = answers
        self.inputs: list[tuple[Any, ...]] = []

    def __call__(self, *key: Tensor) -> Tensor:
        """The answer to this input."""
        return self.answers[position(self.inputs, key)]


class LinearizedCritic:
    """Values and slopes at ``(s, a)``: ``q + ⟨∂q/∂a, a − stopgrad a⟩``, exact to first order where it was read."""

    def __init__(self, read: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        """``read`` gives values ``[..., B]`` and slopes ``[..., B, A]``; the first run reads, later ones repeat it."""
        self.read = read
        self.known: list[tuple[Tensor, Tensor]] = []

    def __call__(self, obs: Tensor, action: Tensor) -> Tensor:
        """Read now."""
        self.known.append(self.read(obs, action))
        return self.known[-1][0]

    def again(self) -> Source:
        """The same answers in the same order, as functions of the action."""
        known = iter(self.known)

        def answer(obs: Tensor, action: Tensor) -> Tensor:
            value, slope = next(known)
            moved = action - action.detach()
            return value + (slope * (moved if slope.ndim == moved.ndim else moved.unsqueeze(-3))).sum(-1)

        return answer


class RecordedPolicy:
    """A ``damper.interface.Policy`` that gets its heads' outputs, side by side, from a source."""

    def __init__(self, heads: Sequence[str], read: Source, average: Source | None = None) -> None:
        """``average`` gives the Polyak average's outputs."""
        self.heads, self.read, self.average = tuple(heads), read, average

    @property
    def stochastic(self) -> bool:
        """Whether the actor has a distribution."""
        return "log_std" in self.heads

    def _head(self, name: str, outputs: Tensor) -> Tensor:
        check_head(name, self.heads)
        return outputs.chunk(len(self.heads), -1)[self.heads.index(name)]

    def __call__(self, obs: Any) -> Tensor:
        """``μ(s)``."""
        return torch.tanh(self._head("mu", self.read(obs)))

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh."""
        outputs = self.read(obs)
        return self._head("mu", outputs), self._head("log_std", outputs).clamp(*LOG_STD_RANGE)

    def prediction(self, obs: Any) -> Tensor:
        """The second head."""
        return self._head("prediction", self.read(obs))

    def averaged_prediction(self, obs: Any) -> Tensor:
        """The Polyak average's second head."""
        assert self.average is not None
        return self._head("prediction", self.average(obs))


class RecordedCritic:
    """A ``damper.interface.Critic`` that get their values from sources: both, or the first alone."""

    def __init__(self, both: Source, first: Source | None = None) -> None:
        """``both`` gives ``[P, 2, B]``, ``first`` ``[P, B]``: without one, both are read for it too."""
        self.both = both
        # Not `first or`: PyTorch 2.11 cannot compile asking whether a function is true.
        self.first = (lambda obs, action: both(obs, action)[:, 0]) if first is None else first

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1, Q_2``."""
        return self.both(obs, action)


class RecordedActionGradients:
    """A critic for PAVE's loss, which reads action gradients and curvatures only (``losses.pave.field``)."""

    def __init__(self, action_field: Callable[..., tuple[list[Tensor], Tensor]]) -> None:
        """``action_field`` as ``StackedCritic`` has it."""
        self.action_field = action_field

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """Its values are not known."""
        raise NotImplementedError

    first = __call__


def position(inputs: list[tuple[Any, ...]], key: tuple[Any, ...]) -> int:
    """Where these very tensors stand in the list; new ones are appended. torch.compile follows `is`, but not `id`."""
    for i, other in enumerate(inputs):
        if all(a is b for a, b in zip(key, other, strict=True)):
            return i
    inputs.append(key)
    return len(inputs) - 1
