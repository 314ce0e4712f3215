"""The gradient backend for eager updates: ``torch.autograd`` differentiates any loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from damper.engine.gradients.backend import CriticGradient
from damper.engine.gradients.objectives import Logs, LossAndLogs, Objectives, add_losses
from damper.engine.networks.agent_networks import AgentNetworks
from damper.engine.networks.layout import Layout, Weights, weight_list, weights_from_list

Network = TypeVar("Network")


class AutogradBackend:
    """Computes gradients by ``torch.autograd``; see ``GradientBackend``."""

    traceable = False

    def __init__(self, networks: AgentNetworks) -> None:
        """Compute gradients of these networks, whose parameters may change between calls."""
        self.networks, self.agent_by_agent = networks, networks.device.type == "cpu"

    def critic_gradient(
        self, objectives: Objectives, without_smoothness: bool = False
    ) -> CriticGradient:
        """See ``GradientBackend``."""
        networks, method = self.networks, objectives.method
        with torch.no_grad():
            y = objectives.target(
                networks.actor(networks.target_policy), networks.critic("critic_target")
            )

        def loss(critic: Any) -> LossAndLogs:
            td_loss = objectives.td_loss(critic, y)
            if method.critic is None or (without_smoothness and method.separate_critic_pass):
                return td_loss
            return add_losses(td_loss, objectives.critic_smoothness_loss(critic, networks.actor()))

        return self._gradient_wrt_critics(loss)

    def critic_smoothness_gradient(self, objectives: Objectives) -> CriticGradient:
        """See ``GradientBackend``."""
        return self._gradient_wrt_critics(
            lambda critic: objectives.critic_smoothness_loss(critic, self.networks.actor())
        )

    def _gradient_wrt_critics(self, loss: Callable[[Any], LossAndLogs]) -> CriticGradient:
        networks = self.networks
        flat_params = networks.twins("critic")
        (gradient,), logs = autograd_gradients(
            [loss], networks.bound_critic, networks.critic_layout, flat_params
        )
        return CriticGradient(gradient.view(networks.n_agents, -1), logs)

    def actor_gradients(
        self, objectives: Objectives, saved_activations: Sequence[Tensor] = ()
    ) -> tuple[list[Tensor], Logs]:
        """See ``GradientBackend``; ``saved_activations`` are not used."""
        networks, method = self.networks, objectives.method
        critic = networks.critic()
        losses: list[Callable[[Any], LossAndLogs]] = [
            lambda policy: objectives.primary_loss(policy, critic)
        ]
        if method.actor is not None and method.rule:
            losses.append(objectives.auxiliary_loss)
        elif method.actor is not None:
            losses = [lambda policy: objectives.primary_plus_auxiliary(policy, critic)]
        return autograd_gradients(
            losses, networks.bound_actor, networks.actor_layout, networks.parameters["actor"]
        )


def autograd_gradients(
    losses: Sequence[Callable[[Network], LossAndLogs]],
    bind: Callable[[Weights], Network],
    layout: Layout,
    flat_params: Tensor,
) -> tuple[list[Tensor], Logs]:
    """Flat gradients ``[M, n]`` of each loss (``[P]``, summed) with respect to the parameters, and all logs.

    Each loss takes the network that ``bind`` makes from the layers; all share its forward pass.
    """
    tensors = [
        tensor.detach().requires_grad_() for tensor in weight_list(layout.unflatten(flat_params))
    ]
    with torch.enable_grad():
        network = bind(weights_from_list(layout, tensors))
        values, logs = zip(*(loss(network) for loss in losses), strict=True)
        gradients = [
            layout.flatten(
                torch.autograd.grad(
                    value.sum(), tensors, retain_graph=i + 1 < len(values), materialize_grads=True
                )
            )
            for i, value in enumerate(values)
        ]
    return gradients, {name: value.detach() for part in logs for name, value in part.items()}
