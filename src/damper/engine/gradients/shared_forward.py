"""Gradients from shared forward passes, written by hand layer by layer, for ``torch.compile``.

Each network runs once, on all inputs that the losses need, and all losses share one backward pass
through it. A loss that needs more than a network's outputs is differentiated by ``torch.func``
instead, and its gradient is added.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.engine.gradients.action_gradient_tape import ActionGradientTape
from damper.engine.gradients.backend import CriticGradient
from damper.engine.gradients.functional import func_gradients, output_gradients
from damper.engine.gradients.objectives import Logs, LossAndLogs, Objectives, add_logs, add_losses
from damper.engine.gradients.precomputed import (
    CriticFromActionGradients,
    CriticFromValues,
    InputCollector,
    LinearizedCritic,
    PolicyFromOutputs,
    PrecomputedOutputs,
    Source,
)
from damper.engine.gradients.tape import Tape
from damper.engine.networks.action_gradients import by_agent, repeat_action
from damper.engine.networks.agent_networks import AgentNetworks

ActorLoss = Callable[..., LossAndLogs]  # a function of a policy and a critic


class SharedForwardBackend:
    """Runs one forward pass per network for all losses; see ``GradientBackend``."""

    traceable = True
    agent_by_agent = False

    def __init__(self, networks: AgentNetworks) -> None:
        """Compute gradients of these networks, whose parameters may change between calls."""
        self.networks = networks

    # --- critics ------------------------------------------------------------------------------------------------

    def critic_gradient(
        self, objectives: Objectives, without_smoothness: bool = False
    ) -> CriticGradient:
        """See ``GradientBackend``; the actors' pass is saved if the target uses the actors themselves (SAC)."""
        networks, method = self.networks, objectives.method
        y, saved_activations = self._target(objectives)

        def loss(source: Source) -> LossAndLogs:
            critic = CriticFromValues(source)
            td_loss = objectives.td_loss(critic, y)
            if method.critic is None or method.separate_critic_pass:
                return td_loss
            return add_losses(td_loss, objectives.critic_smoothness_loss(critic, networks.actor()))

        inputs: list[tuple[Any, ...]] = []
        loss(InputCollector(inputs, _two_values))
        tape = _critic_tape(networks, "critic", inputs)
        values = tape.output.view(networks.n_agents, 2, -1).split(
            [obs.shape[1] for obs, _ in inputs], -1
        )
        cotangents, logs = output_gradients(
            lambda outputs: loss(PrecomputedOutputs(outputs)), values
        )
        per_critic = tape.gradients(
            [torch.cat(cotangents, -1).view(tape.output.shape)], _common_length(values, -1)
        )[0]
        gradient = per_critic.view(networks.n_agents, -1)
        if method.separate_critic_pass and not without_smoothness:
            other = self.critic_smoothness_gradient(objectives)
            gradient, logs = gradient + other.gradient, add_logs(logs, other.logs)
        return CriticGradient(gradient, logs, saved_activations)

    def _target(self, objectives: Objectives) -> tuple[Tensor, Sequence[Tensor]]:
        networks = self.networks

        def values(obs: Tensor, action: Tensor) -> Tensor:
            output = _critic_tape(
                networks, "critic_target", [(obs, action)], for_backward=False
            ).output
            return output.view(networks.n_agents, 2, -1)

        if networks.target_policy == "actor":
            actor = _ActorPass(networks, objectives)
            policy, saved_activations = (
                actor.policy(actor.target_inputs),
                actor.tape.saved_activations,
            )
        else:
            source = _actor_source(networks, networks.target_policy)
            policy, saved_activations = PolicyFromOutputs(_heads(networks), source), []
        return objectives.target(policy, CriticFromValues(values)), saved_activations

    def critic_smoothness_gradient(self, objectives: Objectives) -> CriticGradient:
        """See ``GradientBackend``; losses on action gradients use a tape, all others ``torch.func``."""
        networks, loss_on_critic = self.networks, objectives.method.critic
        if loss_on_critic is not None and loss_on_critic.reads_action_gradients_only:
            return self._smoothness_via_action_gradients(objectives)

        def loss(critic: Any) -> LossAndLogs:
            return objectives.critic_smoothness_loss(critic, networks.actor())

        flat_params = networks.twins("critic")
        gradient, logs = func_gradients(
            loss, networks.bound_critic, networks.critic_layout, flat_params
        )
        return CriticGradient(gradient.view(networks.n_agents, -1), logs)

    def _smoothness_via_action_gradients(self, objectives: Objectives) -> CriticGradient:
        """The same for a loss on action gradients and curvatures alone, by ``ActionGradientTape``."""
        networks = self.networks
        tapes: list[ActionGradientTape] = []

        def run(
            observations: Sequence[Tensor], action: Tensor, v: Tensor
        ) -> tuple[list[Tensor], Tensor]:
            x = repeat_action(observations, action)
            layout, flat_params = networks.critic_layout, networks.twins("critic")
            tapes.append(ActionGradientTape(layout, flat_params, networks.sizes.activation, x, v))
            return by_agent(tapes[-1].gradient, tapes[-1].curvature, len(observations))

        def loss(outputs: Sequence[Tensor]) -> LossAndLogs:
            parts = iter(zip(outputs[::2], outputs[1::2], strict=True))
            critic = CriticFromActionGradients(
                lambda observations, action, v: by_agent(*next(parts), len(observations))
            )
            return objectives.critic_smoothness_loss(critic, networks.actor())

        objectives.critic_smoothness_loss(CriticFromActionGradients(run), networks.actor())
        outputs = [part for tape in tapes for part in (tape.gradient, tape.curvature)]
        cotangents, logs = output_gradients(loss, outputs)
        gradients = [tape.gradients(*cotangents[2 * i : 2 * i + 2]) for i, tape in enumerate(tapes)]
        return CriticGradient(
            functools.reduce(torch.add, gradients).view(networks.n_agents, -1), logs
        )

    # --- actors -------------------------------------------------------------------------------------------------

    def actor_gradients(
        self, objectives: Objectives, saved_activations: Sequence[Tensor] = ()
    ) -> tuple[list[Tensor], Logs]:
        """See ``GradientBackend``.

        1. ``_ActorPass`` calls each loss with zeros to collect the observations that it reads, and
        runs the actors once
           on all of them.
        2. The primary loss runs on these outputs, so that the critics are evaluated at its actions.
        3. Each loss is differentiated with respect to the outputs that it read, with the critics
        linearised there. 4. One backward pass turns these cotangents into gradients ``[P, n]``.
        """
        networks, method = self.networks, objectives.method
        actor = _ActorPass(networks, objectives, saved_activations)
        both, first = LinearizedCritic(self._both_critics), LinearizedCritic(self._first_critic)
        # Only the first loss uses the critics, at actions that depend on the actor's outputs.
        primary_loss, inputs = actor.losses[0]
        primary_loss(actor.policy(inputs), CriticFromValues(both, first))
        cotangents: list[Tensor] = []
        logs: Logs = {}
        for loss, inputs in actor.losses:

            def of_outputs(outputs: Sequence[Tensor], loss: ActorLoss = loss) -> LossAndLogs:
                return loss(
                    actor.policy_of(outputs),
                    CriticFromValues(both.linearized(), first.linearized()),
                )

            gradients_wrt_outputs, more = output_gradients(of_outputs, actor.outputs_at(inputs))
            cotangents.append(actor.as_rows(gradients_wrt_outputs, inputs))
            logs |= more
        gradients = actor.tape.gradients(cotangents, _common_length(actor.outputs))
        if method.actor is not None and not method.actor.reads_outputs_only:
            layout, flat_params = networks.actor_layout, networks.parameters["actor"]
            other, more = func_gradients(
                objectives.auxiliary_loss, networks.bound_actor, layout, flat_params
            )
            gradients = [*gradients, other] if method.rule else [gradients[0] + other]
            logs |= more
        return gradients, logs

    def _both_critics(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        tape = _critic_tape(self.networks, "critic", [(obs, action)])
        shape = (self.networks.n_agents, 2, obs.shape[1], -1)
        return tape.output.view(shape).squeeze(-1), tape.input_gradients().view(shape)[
            ..., obs.shape[-1] :
        ]

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
        self,
        networks: AgentNetworks,
        objectives: Objectives,
        saved_activations: Sequence[Tensor] = (),
    ) -> None:
        """Collect the losses' inputs, then run the actors or reuse the activations that ``critic_gradient`` saved."""
        self.networks, self.heads = networks, _heads(networks)
        self.averages: list[Tensor] = []
        inputs: list[tuple[Any, ...]] = []
        zeros = CriticFromValues(lambda obs, action: obs.new_zeros(_two_values(obs, action)))
        self.losses: list[tuple[ActorLoss, list[int]]] = []
        for loss in _actor_losses(objectives):
            self.losses.append(
                (loss, self._inputs_of(inputs, functools.partial(loss, critic=zeros)))
            )
        if networks.target_policy == "actor":
            self.target_inputs = self._inputs_of(
                inputs, lambda policy: objectives.target(policy, zeros)
            )
        layout, flat_params = networks.actor_layout, networks.parameters["actor"]
        if saved_activations:
            self.tape = Tape.from_saved(layout, flat_params, saved_activations)
        else:
            self.tape = Tape(
                layout,
                flat_params,
                networks.sizes.activation,
                torch.cat([obs for (obs,) in inputs], 1),
            )
        self.outputs = self.tape.output.split([obs.shape[1] for (obs,) in inputs], 1)

    def _inputs_of(self, inputs: list[tuple[Any, ...]], loss: Callable[[Any], Any]) -> list[int]:
        """Indices of the observations that a loss needs; also computes the averaged actor's outputs that it needs."""
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

    def policy(self, inputs: Sequence[int]) -> PolicyFromOutputs:
        """The policy for a loss with these inputs."""
        return self.policy_of(self.outputs_at(inputs))

    def policy_of(self, outputs: Sequence[Tensor]) -> PolicyFromOutputs:
        """The same for given outputs, to be differentiated with respect to them."""
        averages = iter(self.averages)
        return PolicyFromOutputs(
            self.heads, PrecomputedOutputs(outputs), lambda obs: next(averages)
        )

    def as_rows(self, gradients: Sequence[Tensor], inputs: Sequence[int]) -> Tensor:
        """A loss's gradients with respect to its outputs as ``[P, rows, outputs]``, up to the last row that it uses."""
        known = dict(zip(inputs, gradients, strict=True))
        return torch.cat(
            [known.get(i, torch.zeros_like(self.outputs[i])) for i in range(max(inputs) + 1)], 1
        )


def _actor_losses(objectives: Objectives) -> list[ActorLoss]:
    """The losses that read only the actors' outputs: primary and auxiliary for a rule, otherwise their sum."""
    method = objectives.method
    if method.actor is None or not method.actor.reads_outputs_only:
        return [objectives.primary_loss]
    if not method.rule:
        return [objectives.primary_plus_auxiliary]
    return [objectives.primary_loss, lambda policy, critic: objectives.auxiliary_loss(policy)]


def _heads(networks: AgentNetworks) -> tuple[str, ...]:
    return tuple(
        name for name, _, _ in networks.actor_layout.layers if not name.startswith("trunk.")
    )


def _actor_source(networks: AgentNetworks, name: str) -> Source:
    layout, flat_params, activation = (
        networks.actor_layout,
        networks.parameters[name],
        networks.sizes.activation,
    )
    return lambda obs: Tape(layout, flat_params, activation, obs, for_backward=False).output


def _critic_tape(
    networks: AgentNetworks,
    name: str,
    inputs: Sequence[tuple[Any, ...]],
    stride: int = 1,
    for_backward: bool = True,
) -> Tape:
    x = torch.cat([torch.cat(pair, -1) for pair in inputs], 1)
    return Tape(
        networks.critic_layout,
        networks.twins(name),
        networks.sizes.activation,
        x,
        for_backward,
        stride,
    )


def _common_length(parts: Sequence[Tensor], axis: int = 1) -> int:
    return math.gcd(*(part.shape[axis] for part in parts))


def _two_values(obs: Tensor, action: Tensor) -> tuple[int, ...]:
    return (len(obs), 2, obs.shape[1])
