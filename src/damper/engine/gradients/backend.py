"""The interface of gradient backends, which compute the gradients of an update's losses.

``AutogradBackend``, the reference, is for eager updates. ``SharedForwardBackend`` is for
``torch.compile``: its losses share one forward and one backward pass, a few kernels per layer on a
GPU. Both take any loss and give the same numbers. ``Learner`` chooses one for its population; other
code only reads its attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from damper.engine.gradients.objectives import Logs, Objectives
from damper.engine.networks.agent_networks import AgentNetworks


class CriticGradient(NamedTuple):
    """Gradient ``[P, 2n]`` of the critics' loss, its logs, and the activations that ``actor_gradients`` may reuse."""

    gradient: Tensor
    logs: Logs
    saved_activations: Sequence[Tensor] = ()


class GradientBackend(Protocol):
    """Computes the gradients of an update's losses: the critics' and, after their step, the actors'.

    Attributes:
        networks: the networks whose gradients are computed.
        traceable: whether ``torch.compile`` can trace it into one graph.
            ``critic_smoothness_gradient`` is then a separate pass inside ``critic_gradient`` too,
            and may run on another stream.
        agent_by_agent: whether the update's rule and Adam handle one agent after the other, with
            fewer passes through memory, as eager updates on a CPU do. Only then does an update read
            tensor values.
    """

    networks: AgentNetworks
    traceable: bool
    agent_by_agent: bool

    def critic_gradient(
        self, objectives: Objectives, without_smoothness: bool = False
    ) -> CriticGradient:
        """Gradient with respect to the critics; without that of ``critic_smoothness_gradient`` if asked for."""

    def critic_smoothness_gradient(self, objectives: Objectives) -> CriticGradient:
        """Gradient of the method's critic loss alone, for methods with ``separate_critic_pass``; if ``traceable``."""

    def actor_gradients(
        self, objectives: Objectives, saved_activations: Sequence[Tensor] = ()
    ) -> tuple[list[Tensor], Logs]:
        """Gradients with respect to the actors, ``[P, n]``: primary and auxiliary for a rule, otherwise their sum."""
