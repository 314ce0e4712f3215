"""The losses of one update, and their gradients by ``torch.autograd``.

A population differentiates its losses in one of two ways, chosen when it is made: ``Autograd``
here, the reference, for eager updates, or ``damper.engine.fused.Fused`` for ``torch.compile``. Both
take any loss and give the same numbers: ``of_critics`` and, after the critics' step, ``of_actors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from damper.agents import BACKBONES
from damper.engine.networks.agent_networks import AgentNetworks
from damper.engine.networks.layout import Layout, Weights
from damper.errors import DamperError
from damper.interface import Batch, Critic, NoiseDraws, Policy

Logs = dict[str, Tensor]  # values to log, [P] by name
Logged = tuple[Tensor, Logs]  # a loss, one value per agent [P], or its gradient; and its logs


class Given(NamedTuple):
    """What the losses of one update read besides the networks."""

    batch: Batch
    noise: NoiseDraws
    hparams: Mapping[str, Tensor]


class CriticGradient(NamedTuple):
    """Gradient ``[P, 2n]`` of the critics' loss, its logs, and activations for ``of_actors``."""

    gradient: Tensor
    logs: Logs
    saved_activations: Sequence[Tensor] = ()


class Objectives:
    """The losses of a population's backbone and method, on what is given and on networks."""

    def __init__(
        self, networks: AgentNetworks, method_kwargs: Mapping[str, dict[str, Any]]
    ) -> None:
        """``method_kwargs``: the settings by part (``Method.route``), floats or ``[P]``."""
        self.networks, self.method_kwargs = networks, method_kwargs
        self.backbone, self.method = BACKBONES[networks.backbone], networks.method

    def td_loss(self, given: Given, critic: Critic, y: Tensor) -> Logged:
        """The backbone's critic loss, on the error to the target y."""
        value: Tensor = self.backbone.critic_loss(critic, given.batch, y)
        return value, {"critic_loss": value}

    def critic_smoothness_loss(self, given: Given, critic: Critic, policy: Policy) -> Logged:
        """The method's critic loss."""
        loss, settings = self.method.critic, self.method_kwargs["critic"]
        assert loss is not None
        value = loss.function(critic, policy, given.batch, given.noise, **settings)
        if getattr(value, "shape", None) != given.batch.reward.shape[:-1]:
            raise self._wrong_shape("critic", value, given)
        # The backbone's name too, so that the log has the sum of both losses.
        return value, {"critic_loss": value}

    def primary_loss(self, given: Given, policy: Policy, critic: Critic) -> Logged:
        """The backbone's actor loss."""
        value, logs = self.backbone.actor_loss(policy, critic, *given)
        return value, {**logs, "actor_loss": value}

    def auxiliary_loss(self, given: Given, policy: Policy) -> Logged:
        """The method's actor loss."""
        loss, settings = self.method.actor, self.method_kwargs["actor"]
        assert loss is not None
        value = loss.function(policy, given.batch, given.noise, **settings)
        if getattr(value, "shape", None) != given.batch.reward.shape[:-1]:
            raise self._wrong_shape("actor", value, given)
        return value, {"auxiliary_loss": value}

    def _wrong_shape(self, part: str, value: Any, given: Given) -> DamperError:
        """The error for a user's loss that does not return one value per agent."""
        agents, is_tensor = given.batch.reward.shape[:-1], isinstance(value, Tensor)
        returned = f"shape {tuple(value.shape)}" if is_tensor else f"a {type(value).__name__}"
        return DamperError(
            f"the {part}'s loss of method {self.method.name!r} must return one value per agent, "
            f"shape {tuple(agents)}, but returned {returned}: end it in mean((-2, -1)) of "
            "[P, B, A], or mean(-1) of [P, B]."
        )


class Autograd(Objectives):
    """Differentiates any loss eagerly; all losses of a network share its forward pass."""

    def of_critics(self, given: Given) -> CriticGradient:
        """Gradient of the critics' loss, the backbone's plus the method's, by the critics."""
        networks = self.networks
        # A constant of the loss, so it is computed outside the graph.
        with torch.no_grad():
            target_policy = networks.actor(networks.target_policy)
            y = self.backbone.target(target_policy, networks.critic("critic_target"), *given)
        weights, leaves = _leaves(networks.critic_layout, networks.twins("critic"))
        with torch.enable_grad():
            critic = networks.critic(weights)
            loss = self.td_loss(given, critic, y)
            if self.method.critic is not None:
                smoothness = self.critic_smoothness_loss(given, critic, networks.actor())
                loss = add_logged(loss, smoothness)
            value, logs = loss
            gradients = torch.autograd.grad(value.sum(), leaves, materialize_grads=True)
        gradient = networks.critic_layout.flatten(gradients).view(networks.n_agents, -1)
        return CriticGradient(gradient, {name: value.detach() for name, value in logs.items()})

    def of_actors(
        self, given: Given, saved_activations: Sequence[Tensor] = ()
    ) -> tuple[list[Tensor], Logs]:
        """Gradients by the actors, ``[P, n]``: primary and auxiliary for a rule, otherwise the sum.

        ``saved_activations`` are those of ``of_critics``, which only ``Fused`` returns.
        """
        networks, layout = self.networks, self.networks.actor_layout
        critic = networks.critic()  # a constant here: only the actors' layers are leaves
        weights, leaves = _leaves(layout, networks.parameters["actor"])
        with torch.enable_grad():
            policy = networks.actor(weights)
            losses = [self.primary_loss(given, policy, critic)]
            if self.method.actor is not None:
                losses.append(self.auxiliary_loss(given, policy))
                if self.method.rule is None:
                    losses = [add_logged(*losses)]
            gradients: list[Tensor] = []
            logs: Logs = {}
            for i, (value, more) in enumerate(losses, start=1):
                # The last loss may free the graph that all share; a loss may not read all layers.
                by_tensor = torch.autograd.grad(
                    value.sum(), leaves, retain_graph=i < len(losses), materialize_grads=True
                )
                gradients.append(layout.flatten(by_tensor))
                logs |= more
        return gradients, {name: value.detach() for name, value in logs.items()}


def add_logged(first: Logged, second: Logged) -> Logged:
    """Add two losses or gradients of one network; logs of the same name are added too."""
    logs = dict(first[1])
    for name, value in second[1].items():
        logs[name] = logs[name] + value if name in logs else value
    return first[0] + second[0], logs


def _leaves(layout: Layout, flat_params: Tensor) -> tuple[Weights, list[Tensor]]:
    """The layers of flat parameters as leaves of a new graph, and the same leaves as a list."""
    weights: Weights = {}
    leaves: list[Tensor] = []
    for name, (weight, bias) in layout.unflatten(flat_params).items():
        weights[name] = (weight.detach().requires_grad_(), bias.detach().requires_grad_())
        leaves += weights[name]
    return weights, leaves


class CheckedNoise(dict[str, Tensor]):
    """Noise for a loss that is not traced, with a clear error for a name it did not declare."""

    def __missing__(self, name: str) -> Tensor:
        raise DamperError(
            f"a loss must read only noise that it declares, but {name!r} is not among "
            f"{', '.join(self) or 'none'}: "
            f"declare it in Loss(function, noise={{{name!r}: Noise('normal', like='action')}})."
        )
