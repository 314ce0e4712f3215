"""The interface of gradient backends: how the gradients of an update's losses are computed.

``AutogradBackend``, the reference, is for eager updates. ``SharedForwardBackend`` is for ``torch.compile``: its losses
share one forward and one backward pass, a few kernels per layer on a GPU. Both take any loss and give the same numbers.
``Learner`` chooses one for its population; everything else asks that one's properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from damper.engine.gradients.objectives import Logs, Objectives
from damper.engine.networks.agent_networks import AgentNetworks


class CriticGradient(NamedTuple):
    """Of the critics' loss: gradient ``[P, 2n]``, logs, and what ``actor`` may reuse of the forward passes."""

    gradient: Tensor
    logs: Logs
    saved_activations: Sequence[Tensor] = ()


class GradientBackend(Protocol):
    """Computes the gradients of an update's losses: the critics', and after their step the actors'.

    Attributes:
        networks: whose gradients they are.
        traceable: whether ``torch.compile`` can trace it into one graph. ``critic_smoothness`` is then a pass of its
            own inside ``critic`` too, and may run on another stream.
        agent_by_agent: whether an update's rule and Adam take one agent after the other, with fewer passes through
            memory, as eager updates on a CPU do. Only then does an update read tensors' values.
    """

    networks: AgentNetworks
    traceable: bool
    agent_by_agent: bool

    def critic(self, objectives: Objectives, without_smoothness: bool = False) -> CriticGradient:
        """Gradient with respect to the critics; ``without_smoothness`` leaves out what ``critic_smoothness`` gives."""

    def critic_smoothness(self, objectives: Objectives) -> CriticGradient:
        """Gradient of the method's loss on the critics alone, for methods with ``separate_critic_pass``."""

    def actor(self, objectives: Objectives, saved_activations: Sequence[Tensor] = ()) -> tuple[list[Tensor], Logs]:
        """Gradients with respect to the actors, ``[P, n]``: primary and auxiliary for a rule, otherwise their sum."""
