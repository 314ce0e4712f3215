"""P agents of one backbone and one method as stacked tensors, and their update.

Whatever differs between agents is a ``[P]`` tensor. Losses are ``[P]`` and are summed before
differentiation, so each agent gets exactly its own gradient. The update runs eagerly, compiled, or
inside a CUDA graph; only an eager one on a CPU reads tensor values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.agents import sac
from damper.engine.fused import Fused
from damper.engine.gradients import Autograd, CheckedNoise, Given
from damper.engine.networks.agent_networks import AgentNetworks
from damper.engine.update.diagnostics import RULE_DIAGNOSTICS, Diagnostics
from damper.engine.update.optimiser import Adam
from damper.interface import AVERAGE_RATE, Batch, NoiseDraws
from damper.rules import apply_reported, apply_rows, find, initial_state, reads_loss, state_tensors


class Population:
    """The parameters of P agents and the steps that change them, in place.

    ``diagnostics`` holds the sums for the log.
    """

    def __init__(
        self,
        networks: AgentNetworks,
        *,
        hparams: Mapping[str, Tensor],
        method_kwargs: Mapping[str, dict[str, Any]],
        automatic_entropy: bool = False,
        fused: bool = False,
    ) -> None:
        """Make new optimisers and diagnostics for newly made networks.

        Args:
            networks: the networks, whose parameters become the population's.
            hparams: ``[P]`` tensors: learning_rate, gamma, tau and the backbone's own.
            method_kwargs: the method's settings by part (``Method.route``).
            automatic_entropy: for SAC: learn the temperature, starting at ``hparams["ent_coef"]``.
            fused: whether the losses share forward passes, so that ``torch.compile`` can trace the
                update; otherwise autograd differentiates them.
        """
        self.networks, self.method_kwargs, self.fused = networks, method_kwargs, fused
        self.automatic_entropy = automatic_entropy
        self.n_agents, self.device, self.dtype = networks.n_agents, networks.device, networks.dtype
        # This is the only place that chooses how gradients are computed.
        self.gradients = (Fused if fused else Autograd)(networks, method_kwargs)
        self.backbone, self.method = self.gradients.backbone, self.gradients.method
        # Eagerly on a CPU, one agent after the other needs fewer passes through memory.
        self.agent_by_agent = not fused and self.device.type == "cpu"
        rule = self.method.rule if self.method.actor is not None else None
        self.rule = find(rule) if rule else None
        self._rule_reads_loss = self.rule is not None and reads_loss(self.rule)
        # `.to` returns the same tensor if nothing changes, so `Scheduled` can write those that
        # graphs read in place.
        self.hparams = {name: value.to(self.device, self.dtype) for name, value in hparams.items()}
        self._has_average = "actor_average" in networks.parameters
        self.noise_shapes = networks.sizes.noise_shapes
        self.noise_kinds = {**self.backbone.UPDATE_NOISE, **self.method.noise}
        self._state: dict[str, Tensor] = {**networks.parameters}
        self._initialise()

    def _initialise(self) -> None:
        state = self._state
        names = ["actor", "critic"]
        if self.automatic_entropy:
            state["log_ent_coef"] = self.hparams["ent_coef"].log().unsqueeze(1)
            names.append("log_ent_coef")
        self.optimisers = {name: Adam.like(state[name], self.agent_by_agent) for name in names}
        for name, adam in self.optimisers.items():
            state |= {f"{name}.{part}": tensor for part, tensor in adam.state().items()}
        # Frozen agents stay in the batch, masked out: the sizes of a population never change.
        state["active"] = torch.ones(self.n_agents, dtype=torch.bool, device=self.device)
        state["frozen_at"] = torch.full((self.n_agents,), -1, dtype=torch.int64, device=self.device)
        state["updates"] = torch.zeros((), dtype=torch.int64, device=self.device)
        self.diagnostics = Diagnostics(self.method, self.n_agents, self.device)
        state |= self.diagnostics.state()
        rule_kwargs = self.method_kwargs["rule"]
        self._rule_state = self.rule and initial_state(self.rule, state["actor"], **rule_kwargs)
        state |= {f"memory.{i}": value for i, value in enumerate(state_tensors(self._rule_state))}

    def state(self) -> dict[str, Tensor]:
        """All tensors that an update changes, by name; n is a network's number of parameters.

        - ``actor``, ``actor_target`` (TD3), ``actor_average`` (ASAP): ``[P, n]``; ``critic``,
          ``critic_target``: both critics, ``[P, 2n]``; ``log_ent_coef``: ``[P, 1]``, if SAC learns
          its temperature.
        - ``actor.m``, ``critic.v``, …: what Adam keeps of each network that it steps
          (``Adam.state``).
        - ``active``: whether an agent still learns, ``[P]``; ``frozen_at``: the update whose
          gradient was not finite, ``[P]``, or -1; ``updates``: the number of updates, which also
          numbers their random draws.
        - ``diagnostics``, ``diagnosed``: sums for the log, and how many steps each is of
          (``Diagnostics.state``).
        - ``memory.0``, …: the rule's state, for rules with memory.
        """
        return self._state

    # --- the update -------------------------------------------------------------------------------

    def update_on(self, batch: Batch, noise: NoiseDraws, with_actor: bool) -> None:
        """Take one gradient step of every agent on a batch ``[P, B, ·]`` with its losses' noise.

        The actors and target networks move too if ``with_actor``: with SAC at every update, with
        TD3 at every ``policy_delay``-th.
        """
        saved_activations = self.step_critic(batch, noise, with_actor)
        if with_actor:
            log_prob = self.step_actor(batch, noise, saved_activations)
            # Last, after everything that reads the temperature.
            if log_prob is not None:
                self.step_temperature(log_prob)

    def step_critic(self, batch: Batch, noise: NoiseDraws, with_actor: bool) -> Sequence[Tensor]:
        """The critics' step, which begins every update; returns activations for ``step_actor``."""
        gradient, logs, saved_activations = self.gradients.of_critics(self._given(batch, noise))
        # Counted on the device, where it numbers the next draws of a replayed graph too.
        self._state["updates"] += 1
        self._step("critic", gradient)
        self.diagnostics.add(logs, of_actor=False)
        # The critics' target moves only together with the actors, which do not read it: so it can
        # move here, where it fuses with the step that writes the new parameters.
        if with_actor:
            self.polyak_update("critic", "critic_target", self.hparams["tau"])
        elif self._has_average:
            self.update_actor_average()
        return saved_activations

    def step_actor(
        self, batch: Batch, noise: NoiseDraws, saved_activations: Sequence[Tensor] = ()
    ) -> Tensor | None:
        """The actors' and their copies' step; returns ``log π`` if the temperature is learned."""
        given = self._given(batch, noise)
        gradients, logs = self.gradients.of_actors(given, saved_activations)
        gradient = gradients[0] if self.rule is None else self._combine(gradients, logs)
        self._step("actor", gradient)
        self.diagnostics.add(logs, of_actor=True)
        # After the step: the copies follow the new parameters.
        if self.backbone.HAS_ACTOR_TARGET:
            self.polyak_update("actor", "actor_target", self.hparams["tau"])
        if self._has_average:
            self.update_actor_average()
        return logs["log_prob"] if self.automatic_entropy else None

    def step_temperature(self, log_prob: Tensor) -> None:
        """SAC's last step if the temperature is learned."""
        target_entropy = -float(self.networks.sizes.act_dim)
        gradient = sac.temperature_gradient(log_prob, target_entropy)
        self._step("log_ent_coef", gradient.unsqueeze(1))

    def _given(self, batch: Batch, noise: NoiseDraws) -> Given:
        """What the losses read, with the current temperature."""
        hparams = self.hparams
        if self.automatic_entropy:
            ent_coef = self._state["log_ent_coef"].squeeze(1).exp()
            hparams = {**hparams, "ent_coef": ent_coef}
        # Losses that will be traced have met the checked noise before, in ``check_own_losses``.
        return Given(batch, noise if self.fused else CheckedNoise(noise), hparams)

    def _combine(self, gradients: Sequence[Tensor], logs: dict[str, Tensor]) -> Tensor:
        """Apply the rule to the two gradients ``[P, n]``, and update its state in place."""
        assert self.rule is not None
        primary, auxiliary = gradients
        rule, kwargs, state = self.rule, self.method_kwargs["rule"], self._rule_state
        if self._rule_reads_loss:
            kwargs = {**kwargs, "auxiliary_loss": logs["auxiliary_loss"]}
        result = None
        if self.agent_by_agent:
            result = apply_rows(rule, primary, auxiliary, **kwargs)
        if result is None:
            memory = state is not None
            result = apply_reported(rule, primary, auxiliary, state, memory, **kwargs)
            # In place, because CUDA graphs and checkpoints keep the tensors.
            for old, new in zip(state_tensors(state), state_tensors(result[1].state), strict=True):
                old.copy_(new)
        combined, report = result
        logs |= {name: getattr(report, name) for name in RULE_DIAGNOSTICS}
        return combined

    def _step(self, name: str, gradient: Tensor) -> None:
        """Take an optimiser step for agents with a finite gradient; freeze the others from here on.

        Its norm must be finite too: an infinite second moment would silently stop the agent from
        learning.
        """
        state = self._state
        active, frozen_at = state["active"], state["frozen_at"]
        norm = torch.linalg.vector_norm(gradient, dim=1)
        active.logical_and_(norm.isfinite())
        if "max_grad_norm" in self.hparams and name != "log_ent_coef":
            # As torch.nn.utils.clip_grad_norm_ has it, for each agent.
            factor = (self.hparams["max_grad_norm"] / (norm + 1e-6)).clamp(max=1.0)
            gradient = gradient * factor.unsqueeze(1)
        # Also agents that a callback froze; the trainer knows them.
        newly_frozen = ~active & (frozen_at < 0)
        frozen_at.copy_(torch.where(newly_frozen, state["updates"], frozen_at))
        self.optimisers[name].step(state[name], gradient, self.hparams["learning_rate"], active)

    def update_actor_average(self) -> None:
        """Move the average of actors with a second head, at every update."""
        rate = torch.full_like(self.hparams["tau"], AVERAGE_RATE)
        self.polyak_update("actor", "actor_average", rate)

    def polyak_update(self, name: str, copy: str, rate: Tensor) -> None:
        """A copy's step towards its original: ``θ' ← (1−τ) θ' + τ θ`` with a rate per agent."""
        target, online = self._state[copy], self._state[name]
        # The copies of inactive agents stay; their originals may not be finite.
        goal = torch.where(self._state["active"].unsqueeze(1), online, target)
        target.lerp_(goal, rate.to(target.dtype).unsqueeze(1))
