"""P agents of one backbone and one method as stacked tensors, and their update.

Whatever differs between agents is a ``[P]`` tensor. Losses are ``[P]`` and are summed before
differentiation, so each agent gets exactly its own gradient. The update runs eagerly, compiled, or
inside a CUDA graph; it reads tensor values only if its gradient backend is ``agent_by_agent``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from damper.agents import BACKBONES, sac
from damper.engine.data.random_streams import Streams
from damper.engine.gradients.backend import CriticGradient, GradientBackend
from damper.engine.gradients.objectives import CheckedNoise, Logs, Objectives
from damper.engine.update.diagnostics import RULE_DIAGNOSTICS, Diagnostics
from damper.engine.update.optimiser import Adam, polyak
from damper.interface import AVERAGE_RATE, Batch, Noise, NoiseDraws
from damper.rules import (
    apply_reported,
    apply_rows,
    find,
    initial_state,
    reads_loss,
    state_tensors,
)


class Population:
    """The parameters of P agents and the functions that change them, in place.

    ``diagnostics`` holds the sums for the log.
    """

    def __init__(
        self,
        *,
        gradient_backend: GradientBackend,
        hparams: Mapping[str, Tensor],
        method_kwargs: Mapping[str, dict[str, Any]],
        automatic_entropy: bool = False,
    ) -> None:
        """Make new optimisers and diagnostics for newly made networks.

        Args:
            gradient_backend: computes gradients of its ``networks``, which are the population's.
            hparams: ``[P]`` tensors: learning_rate, gamma, tau and the backbone's own.
            method_kwargs: the method's settings by part (``Method.route``), floats or ``[P]``
                tensors.
            automatic_entropy: for SAC: learn the temperature, starting at ``hparams["ent_coef"]``.
        """
        self.gradient_backend, self.networks = gradient_backend, gradient_backend.networks
        self.backbone, self.method = BACKBONES[self.networks.backbone], self.networks.method
        self.rule = find(self.method.rule) if self.method.rule else None
        self._rule_reads_loss = self.rule is not None and reads_loss(self.rule)
        self.method_kwargs, self.automatic_entropy = method_kwargs, automatic_entropy
        self.n_agents, self.device, self.dtype = (
            self.networks.n_agents,
            self.networks.device,
            self.networks.dtype,
        )
        # `.to` returns the same tensor if nothing changes, so `Scheduled` can write those that
        # graphs read in place.
        self.hparams = {name: value.to(self.device, self.dtype) for name, value in hparams.items()}
        self._state: dict[str, Tensor] = {**self.networks.parameters}
        self._initialise()
        self.noise_kinds = {**self.backbone.UPDATE_NOISE, **self.method.noise}

    def _initialise(self) -> None:
        state = self._state
        names = ["actor", "critic"]
        if self.automatic_entropy:
            state["log_ent_coef"] = self.hparams["ent_coef"].log().unsqueeze(1)
            names.append("log_ent_coef")
        self.optimisers = {
            name: Adam.like(state[name], self.gradient_backend.agent_by_agent) for name in names
        }
        for name, adam in self.optimisers.items():
            state |= {f"{name}.{part}": tensor for part, tensor in adam.state().items()}
        state["active"] = torch.ones(self.n_agents, dtype=torch.bool, device=self.device)
        state["frozen_at"] = torch.full((self.n_agents,), -1, dtype=torch.int64, device=self.device)
        state["updates"] = torch.zeros((), dtype=torch.int64, device=self.device)
        self.diagnostics = Diagnostics(self.method, self.n_agents, self.device)
        state |= self.diagnostics.state()
        self._rule_state = self.rule and initial_state(
            self.rule, state["actor"], **self.method_kwargs["rule"]
        )
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

    def draw(
        self, kinds: Mapping[str, Noise], streams: Streams, count: Tensor | int, rows: int
    ) -> dict[str, Tensor]:
        """Draw number ``count`` of each of these streams, ``[P, rows, ·]``."""
        sizes = {
            "obs": (self.networks.sizes.obs_dim,),
            "action": (self.networks.sizes.act_dim,),
            None: (),
        }
        return {
            name: getattr(streams, noise.kind)(name, count, (rows, *sizes[noise.like]), self.dtype)
            for name, noise in kinds.items()
        }

    def _current_hparams(self) -> dict[str, Tensor]:
        if not self.automatic_entropy:
            return self.hparams
        return {**self.hparams, "ent_coef": self._state["log_ent_coef"].squeeze(1).exp()}

    # --- the update ---------------------------------------------------------------------------------------------

    def update_temperature(self, log_prob: Tensor) -> None:
        """SAC's last step if the temperature is learned, after everything that reads the temperature."""
        target_entropy = -float(self.networks.sizes.act_dim)
        self._step("log_ent_coef", sac.temperature_gradient(log_prob, target_entropy).unsqueeze(1))

    def critic_gradient(
        self, batch: Batch, noise: NoiseDraws, without_smoothness: bool = False
    ) -> CriticGradient:
        """See ``GradientBackend.critic_gradient``."""
        return self.gradient_backend.critic_gradient(
            self._objectives(batch, noise), without_smoothness
        )

    def critic_smoothness_gradient(self, batch: Batch, noise: NoiseDraws) -> CriticGradient:
        """See ``GradientBackend.critic_smoothness_gradient``."""
        return self.gradient_backend.critic_smoothness_gradient(self._objectives(batch, noise))

    def step_critic(self, gradient: Tensor, logs: Logs, with_actor: bool) -> None:
        """The critics' optimiser step, which begins every update and counts it.

        If the actors step too (``with_actor``), the critics' target networks move here. If they do
        not, the actors' average moves here; otherwise it moves after the actors' step
        (``step_actor``).
        """
        self._state["updates"] += 1
        self._step("critic", gradient)
        self.diagnostics.add_critic(logs)
        if with_actor:
            # Here it fuses with the step that writes the new parameters; the actors do not read the
            # target.
            self.polyak_update("critic", "critic_target", self.hparams["tau"])
        else:
            self.update_actor_average()

    def step_actor(
        self, batch: Batch, noise: NoiseDraws, saved_activations: Sequence[Tensor] = ()
    ) -> Tensor | None:
        """The actors' step and their copies', after the critics'; returns ``log π`` if the temperature is learned."""
        gradients, logs = self.gradient_backend.actor_gradients(
            self._objectives(batch, noise), saved_activations
        )
        gradient = self._combine(gradients, logs) if len(gradients) == 2 else gradients[0]
        self._step("actor", gradient)
        self.diagnostics.add_actor(logs)
        if self.backbone.HAS_ACTOR_TARGET:
            self.polyak_update("actor", "actor_target", self.hparams["tau"])
        self.update_actor_average()
        return logs["log_prob"] if self.automatic_entropy else None

    def _objectives(self, batch: Batch, noise: NoiseDraws) -> Objectives:
        noise = noise if self.gradient_backend.traceable else CheckedNoise(noise)
        return Objectives(
            self.backbone, self.method, self.method_kwargs, batch, noise, self._current_hparams()
        )

    def update_actor_average(self) -> None:
        """Move the average of actors with a second head, at every update."""
        if "actor_average" in self._state:
            self.polyak_update(
                "actor", "actor_average", torch.full_like(self.hparams["tau"], AVERAGE_RATE)
            )

    def polyak_update(self, name: str, copy: str, rate: Tensor) -> None:
        """Move a copy, target or average, towards the parameters that it follows."""
        polyak(self._state[copy], self._state[name], rate, self._state["active"])

    def _combine(self, gradients: Sequence[Tensor], logs: dict[str, Tensor]) -> Tensor:
        """Apply the rule, and update its state in place."""
        assert self.rule is not None
        (g_R, g_T), kwargs = gradients, self.method_kwargs["rule"]
        if self._rule_reads_loss:
            kwargs = {**kwargs, "auxiliary_loss": logs["auxiliary_loss"]}
        cpu_result = (
            apply_rows(self.rule, g_R, g_T, **kwargs)
            if self.gradient_backend.agent_by_agent
            else None
        )
        rule_state = self._rule_state
        combined, report = cpu_result or apply_reported(
            self.rule, g_R, g_T, rule_state, rule_state is not None, **kwargs
        )
        for old, new in zip(state_tensors(rule_state), state_tensors(report.state), strict=True):
            old.copy_(new)
        logs |= {name: getattr(report, name) for name in RULE_DIAGNOSTICS}
        return combined

    def _step(self, name: str, gradient: Tensor) -> None:
        """Take an optimiser step for agents with a finite gradient; freeze the others from here on.

        Its norm must be finite too: an infinite second moment would silently stop the agent from
            learning.
        """
        state = self._state
        state["active"].logical_and_(torch.linalg.vector_norm(gradient, dim=1).isfinite())
        # Also agents that a callback froze; the trainer knows them.
        newly_frozen = ~state["active"] & (state["frozen_at"] < 0)
        state["frozen_at"].copy_(torch.where(newly_frozen, state["updates"], state["frozen_at"]))
        self.optimisers[name].step(
            state[name], gradient, self.hparams["learning_rate"], state["active"]
        )
