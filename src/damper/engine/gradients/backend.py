"""The one interface behind which an update's gradients are found; chosen once, where a learner is built.

``AutogradBackend`` lets PyTorch differentiate: the reference, it takes any loss, and runs eagerly.
``SharedForwardBackend`` is for ``torch.compile``: it shares forward passes between losses, sends them all back at once,
and is a few kernels per layer on a GPU. Both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from damper.engine.gradients.objectives import Logs, Objectives


class CriticGradient(NamedTuple):
    """Of the critics' loss: gradient ``[P, 2n]``, logs, and what ``actor`` may reuse of the forward passes."""

    gradient: Tensor
    logs: Logs
    saved_activations: Sequence[Tensor] = ()


class GradientBackend(Protocol):
    """How the gradients of an update's losses are found: the critics', and after their step the actors'."""

    def critic(self, objectives: Objectives, without_smoothness: bool = False) -> CriticGradient:
        """By the critics' parameters; ``without_smoothness`` leaves out what ``critic_smoothness`` gives."""

    def critic_smoothness(self, objectives: Objectives) -> CriticGradient:
        """Of the method's loss on the critics alone, where it shares no forward pass with theirs."""

    def actor(self, objectives: Objectives, saved_activations: Sequence[Tensor] = ()) -> tuple[list[Tensor], Logs]:
        """By the actors' parameters, ``[P, n]``: native and auxiliary for a rule to combine, otherwise their sum."""
