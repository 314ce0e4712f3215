"""Gradients from shared forward passes, written by hand layer by layer, for ``torch.compile``.

Each network runs once, on all inputs that the losses need, and all losses share one backward pass
through it. A loss that needs more than a network's outputs is differentiated by ``torch.func``
instead, which ``torch.compile`` traces into one graph, and its gradient is added.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.engine.fused import layer_ops
from damper.engine.fused.precomputed import (
    CriticFromValues,
    InputCollector,
    LinearizedCritic,
    PolicyFromOutputs,
    PrecomputedOutputs,
    Source,
)
from damper.engine.fused.tape import Tape
from damper.engine.gradients import CriticGradient, Given, Logged, Logs, Objectives, add_logged
from damper.engine.networks.agent_networks import AgentNetworks
from damper.engine.networks.layout import Layout, Weights, weight_list, weights_from_list

ActorLoss = Callable[..., Logged]  # a function of a policy and a critic


class Fused(Objectives):
    """Differentiates the losses with one forward pass per network, as ``Autograd`` would."""

    def __init__(
        self, networks: AgentNetworks, method_kwargs: Mapping[str, dict[str, Any]]
    ) -> None:
        super().__init__(networks, method_kwargs)
        # Once, because a compiled function cannot look at the device.
        layer_ops.check_capability(networks.device)

    # --- critics ----------------------------------------------------------------------------------

    def of_critics(self, given: Given) -> CriticGradient:
        """As ``Autograd.of_critics``; saves the actors' pass where the target uses it (SAC)."""
        networks, on_critic = self.networks, self.method.critic
        y, saved_activations = self._target(given)

        def loss(source: Source) -> Logged:
            critic = CriticFromValues(source)
            td_loss = self.td_loss(given, critic, y)
            if on_critic is None or not on_critic.reads_outputs_only:
                return td_loss
            return add_logged(td_loss, self.critic_smoothness_loss(given, critic, networks.actor()))

        # Called twice: with zeros, to learn at which inputs it reads the critics, then on values.
        inputs: list[tuple[Any, ...]] = []
        loss(InputCollector(inputs, _two_values))
        tape = _critic_tape(networks, "critic", inputs)
        lengths = [obs.shape[1] for obs, _ in inputs]
        values = tape.output.view(networks.n_agents, 2, -1).split(lengths, -1)
        cotangents, logs = output_gradients(
            lambda outputs: loss(PrecomputedOutputs(outputs)), values
        )
        # One row per value again, as the tape ran them: 2P networks, inputs side by side.
        joined = torch.cat(cotangents, -1).view(tape.output.shape)
        (per_critic,) = tape.gradients([joined], math.gcd(*lengths))
        gradient = per_critic.view(networks.n_agents, -1)
        if on_critic is not None and not on_critic.reads_outputs_only:
            layout, flat_params = networks.critic_layout, networks.twins("critic")
            per_critic, more = func_gradients(
                lambda critic: self.critic_smoothness_loss(given, critic, networks.actor()),
                networks.critic,
                layout,
                flat_params,
            )
            other = per_critic.view(networks.n_agents, -1)
            gradient, logs = add_logged((gradient, logs), (other, more))
        return CriticGradient(gradient, logs, saved_activations)

    def _target(self, given: Given) -> tuple[Tensor, Sequence[Tensor]]:
        networks = self.networks

        def values(obs: Tensor, action: Tensor) -> Tensor:
            tape = _critic_tape(networks, "critic_target", [(obs, action)], for_backward=False)
            return tape.output.view(networks.n_agents, 2, -1)

        critic = CriticFromValues(values)
        if networks.target_policy == "actor":
            actor = _ActorPass(self, given)
            policy = actor.policy(actor.outputs_at(actor.target_inputs))
            return self.backbone.target(policy, critic, *given), actor.tape.saved_activations
        source = _actor_source(networks, networks.target_policy)
        policy = PolicyFromOutputs(_heads(networks), source)
        return self.backbone.target(policy, critic, *given), []

    # --- actors -----------------------------------------------------------------------------------

    def of_actors(
        self, given: Given, saved_activations: Sequence[Tensor] = ()
    ) -> tuple[list[Tensor], Logs]:
        """As ``Autograd.of_actors``.

        1. ``_ActorPass`` calls each loss with zeros to collect the observations that it reads, and
           runs the actors once on all of them.
        2. The primary loss runs on these outputs, so that the critics are evaluated at its actions.
        3. Each loss is differentiated with respect to the outputs that it read, with the critics
           linearised there.
        4. One backward pass turns these cotangents into gradients ``[P, n]``.
        """
        networks, on_actor = self.networks, self.method.actor
        actor = _ActorPass(self, given, saved_activations)
        both, first = LinearizedCritic(self._both_critics), LinearizedCritic(self._first_critic)
        # Only the first loss uses the critics, at actions that depend on the actor's outputs.
        primary_loss, inputs = actor.losses[0]
        policy = actor.policy(actor.outputs_at(inputs))
        primary_loss(policy, CriticFromValues(both, first))
        cotangents: list[Tensor] = []
        logs: Logs = {}
        for loss, inputs in actor.losses:

            def of_outputs(outputs: Sequence[Tensor], loss: ActorLoss = loss) -> Logged:
                critic = CriticFromValues(both.linearized(), first.linearized())
                return loss(actor.policy(outputs), critic)

            gradients_wrt_outputs, more = output_gradients(of_outputs, actor.outputs_at(inputs))
            cotangents.append(actor.as_rows(gradients_wrt_outputs, inputs))
            logs |= more
        lengths = [outputs.shape[1] for outputs in actor.outputs]
        gradients = actor.tape.gradients(cotangents, math.gcd(*lengths))
        if on_actor is not None and not on_actor.reads_outputs_only:
            layout, flat_params = networks.actor_layout, networks.parameters["actor"]
            auxiliary_loss = functools.partial(self.auxiliary_loss, given)
            other, more = func_gradients(auxiliary_loss, networks.actor, layout, flat_params)
            gradients = [*gradients, other] if self.method.rule else [gradients[0] + other]
            logs |= more
        return gradients, logs

    def actor_losses(self, given: Given) -> list[ActorLoss]:
        """Losses that read outputs only: primary and auxiliary for a rule, otherwise the sum."""

        def primary(policy: Any, critic: Any) -> Logged:
            return self.primary_loss(given, policy, critic)

        def auxiliary(policy: Any, critic: Any) -> Logged:
            return self.auxiliary_loss(given, policy)

        if self.method.actor is None or not self.method.actor.reads_outputs_only:
            return [primary]
        if self.method.rule:
            return [primary, auxiliary]
        return [
            lambda policy, critic: add_logged(primary(policy, critic), auxiliary(policy, critic))
        ]

    def _both_critics(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        tape = _critic_tape(self.networks, "critic", [(obs, action)])
        shape = (self.networks.n_agents, 2, obs.shape[1], -1)
        values, gradients = tape.output.view(shape), tape.input_gradients().view(shape)
        return values.squeeze(-1), gradients[..., obs.shape[-1] :]

    def _first_critic(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        tape = _critic_tape(self.networks, "critic", [(obs, action)], stride=2)
        return tape.output.squeeze(-1), tape.input_gradients()[..., obs.shape[-1] :]


class _ActorPass:
    """The actors' forward pass of one update, on all observations that its losses need.

    ``losses`` are those on the actors' outputs, each with the indices of its inputs;
    ``target_inputs`` are the indices of the inputs of the critics' target, if that uses these
    actors. At most one loss may read the averaged actors: their outputs, ``averages``, are replayed
    to every loss in the order of its calls.
    """

    def __init__(
        self, objectives: Fused, given: Given, saved_activations: Sequence[Tensor] = ()
    ) -> None:
        self.networks = networks = objectives.networks
        self.heads = _heads(networks)
        self.averages: list[Tensor] = []
        inputs: list[tuple[Any, ...]] = []
        zeros = CriticFromValues(lambda obs, action: obs.new_zeros(_two_values(obs, action)))
        self.losses: list[tuple[ActorLoss, list[int]]] = []
        for loss in objectives.actor_losses(given):
            collected = self._inputs_of(inputs, functools.partial(loss, critic=zeros))
            self.losses.append((loss, collected))
        if networks.target_policy == "actor":
            self.target_inputs = self._inputs_of(
                inputs, lambda policy: objectives.backbone.target(policy, zeros, *given)
            )
        # Inputs are collected in the same order in both steps, so that saved rows fit.
        layout, flat_params = networks.actor_layout, networks.parameters["actor"]
        if saved_activations:
            self.tape = Tape.from_saved(layout, flat_params, saved_activations)
        else:
            x = torch.cat([obs for (obs,) in inputs], 1)
            self.tape = Tape(layout, flat_params, networks.sizes.activation, x)
        self.outputs = self.tape.output.split([obs.shape[1] for (obs,) in inputs], 1)

    def _inputs_of(self, inputs: list[tuple[Any, ...]], loss: Callable[[Any], Any]) -> list[int]:
        """Indices of the observations that a loss reads; computes averaged outputs on the way."""
        width = self.networks.actor_layout.layer_slices[-1].outputs
        collector = InputCollector(inputs, lambda obs: (*obs.shape[:-1], width))

        def average(obs: Tensor) -> Tensor:
            self.averages.append(_actor_source(self.networks, "actor_average")(obs))
            return self.averages[-1]

        loss(PolicyFromOutputs(self.heads, collector, average))
        return collector.order

    def outputs_at(self, inputs: Sequence[int]) -> list[Tensor]:
        """The actors' outputs at the inputs with these indices."""
        return [self.outputs[i] for i in inputs]

    def policy(self, outputs: Sequence[Tensor]) -> PolicyFromOutputs:
        """The policy for a loss that reads these outputs."""
        # A new iterator each time: every loss reads the averages from the first one on.
        averages = iter(self.averages)
        source = PrecomputedOutputs(outputs)
        return PolicyFromOutputs(self.heads, source, lambda obs: next(averages))

    def as_rows(self, gradients: Sequence[Tensor], inputs: Sequence[int]) -> Tensor:
        """A loss's gradients by outputs as ``[P, rows, outputs]``, up to the last row it reads."""
        # Rows of other losses in between get zeros, since a tape's rows are counted from the first.
        by_input = dict(zip(inputs, gradients, strict=True))
        parts = [by_input.get(i, torch.zeros_like(self.outputs[i])) for i in range(max(inputs) + 1)]
        return torch.cat(parts, 1)


def func_gradients(
    loss: Callable[[Any], Logged],
    bind: Callable[[Weights], Any],
    layout: Layout,
    flat_params: Tensor,
) -> Logged:
    """The flat gradient ``[M, n]`` of a loss by ``flat_params``, and the loss's logs."""

    def of_weights(weights: Sequence[Tensor]) -> Logged:
        return loss(bind(weights_from_list(layout, weights)))

    gradients, logs = output_gradients(of_weights, weight_list(layout.unflatten(flat_params)))
    return layout.flatten(gradients), logs


def output_gradients(
    loss: Callable[[Sequence[Tensor]], Logged], outputs: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], Logs]:
    """``∂ Σ L / ∂ outputs`` of a loss on network outputs, and the loss's logs."""

    def total(*given: Tensor) -> Logged:
        value, logs = loss(given)
        return value.sum(), logs

    positions = tuple(range(len(outputs)))
    gradients, logs = torch.func.grad(total, argnums=positions, has_aux=True)(*outputs)
    return gradients, logs


def _heads(networks: AgentNetworks) -> tuple[str, ...]:
    names = [name for name, _, _ in networks.actor_layout.layers]
    return tuple(name for name in names if not name.startswith("trunk."))


def _actor_source(networks: AgentNetworks, name: str) -> Source:
    layout, flat_params = networks.actor_layout, networks.parameters[name]
    activation = networks.sizes.activation
    return lambda obs: Tape(layout, flat_params, activation, obs, for_backward=False).output


def _critic_tape(
    networks: AgentNetworks,
    name: str,
    inputs: Sequence[tuple[Any, ...]],
    for_backward: bool = True,
    stride: int = 1,
) -> Tape:
    layout, flat_params = networks.critic_layout, networks.twins(name)
    x = torch.cat([torch.cat(pair, -1) for pair in inputs], 1)
    return Tape(layout, flat_params, networks.sizes.activation, x, for_backward, stride)


def _two_values(obs: Tensor, action: Tensor) -> tuple[int, ...]:
    return (len(obs), 2, obs.shape[1])
