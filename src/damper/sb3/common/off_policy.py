"""What the off-policy classes share: an update's inputs, steps of critic and actor."""

from __future__ import annotations

from contextlib import nullcontext
from types import ModuleType
from typing import Any, NamedTuple

from stable_baselines3.common.buffers import NStepReplayBuffer
from torch import Tensor, nn
from torch.optim import Optimizer

from damper._backward import backward
from damper.interface import Batch
from damper.sb3.buffers import indexed, indexed_class, neighbours
from damper.sb3.common.fused import fused
from damper.sb3.common.log import Log
from damper.sb3.common.mixin import SmoothMixin
from damper.sb3.common.networks import SB3Critic, SB3Policy


class UpdateInputs(NamedTuple):
    """What one gradient step takes.

    Attributes:
        sb3_batch: the transitions as SB3 sampled them; ``next_obs`` may be n steps ahead.
        smoothness_batch: the same observations with their neighbours, one step before and after.
        gamma: the discount: a number, or ``[B]`` with n-step sampling.
        noise: the draws that the method's losses ask for, by name.
    """

    sb3_batch: Batch
    smoothness_batch: Batch
    gamma: Any
    noise: dict[str, Tensor]


class OffPolicyMixin(SmoothMixin):
    """Mixin before an SB3 off-policy class: only ``train`` is not SB3's any more."""

    backbone: ModuleType

    def _setup_model(self) -> None:
        super()._setup_model()
        self._set_action_scale()
        if self._method.prediction:
            head = list(self.method_state.head.parameters())
            self.actor.optimizer.add_param_group({"params": head})

    @property
    def _actor(self) -> nn.Module:
        return self.actor

    def _check_buffer(self) -> None:
        if self._needs_rows():
            indexed_class(self.replay_buffer, self._method.name)

    def _needs_rows(self) -> bool:
        """Whether the method needs neighbours that SB3's samples do not contain."""
        ahead = isinstance(self.replay_buffer, NStepReplayBuffer)
        return self._method.previous_obs or (bool(self._method.losses) and ahead)

    def load_replay_buffer(self, *arguments: Any, **keywords: Any) -> None:
        """SB3's; the loaded buffer is checked like a new one."""
        super().load_replay_buffer(*arguments, **keywords)  # type: ignore[misc]
        self._check_buffer()

    def _sample_action(self, *arguments: Any, **keywords: Any) -> Any:
        """SB3's; also keeps the action without exploration noise."""
        with self._trace.watch(self.policy.actor):
            return super()._sample_action(*arguments, **keywords)  # type: ignore[misc]

    # --- one update's inputs ---------------------------------------------------------------------

    def _sample_inputs(self, batch_size: int) -> UpdateInputs:
        """A batch as SB3 samples it, and the method's further inputs."""
        env, buffer, method = self._vec_normalize_env, self.replay_buffer, self._method
        with indexed(buffer, method.name) if self._needs_rows() else nullcontext():
            samples = buffer.sample(batch_size, env=env)
        sb3_batch = Batch(
            samples.observations,
            samples.actions,
            samples.rewards.reshape(-1),
            samples.next_observations,
            samples.dones.reshape(-1),
            progress=1.0 - self._current_progress_remaining,
            action_scale=self._action_scale,
        )
        gamma = self.gamma if samples.discounts is None else samples.discounts.reshape(-1)
        smoothness_batch = sb3_batch
        if method.previous_obs or (method.losses and samples.discounts is not None):
            # Only now may a custom buffer turn out to sample n steps ahead: raise the same error.
            indexed_class(buffer, method.name)
            around = neighbours(buffer, samples, env, method.previous_obs)
            smoothness_batch = sb3_batch._replace(**around._asdict())
        return UpdateInputs(sb3_batch, smoothness_batch, gamma, self._draw_noise(sb3_batch))

    # --- the two gradient steps ------------------------------------------------------------------

    def _critic_loss(self, inputs: UpdateInputs, target: Tensor) -> Tensor:
        return self.backbone.critic_loss(SB3Critic(self.critic), inputs.sb3_batch, target)

    def _update_critic(
        self, target: Tensor, policy: SB3Policy, inputs: UpdateInputs, log: Log
    ) -> None:
        """One gradient step of the critics on SB3's loss plus the method's critic loss."""
        loss = self._critic_loss(inputs, target)
        if auxiliary := self._method.critic:
            critic, settings = SB3Critic(self.critic), self._settings["critic"]
            loss = loss + auxiliary(
                critic, policy, inputs.smoothness_batch, inputs.noise, **settings
            )
        log.add(critic_loss=loss)
        self.critic.optimizer.zero_grad()
        loss.backward()
        self._step(self.critic.optimizer)

    def _update_actor(
        self, actor_loss: Tensor, policy: SB3Policy, inputs: UpdateInputs, log: Log
    ) -> None:
        """One gradient step of the actor, SB3's gradient combined with the auxiliary one."""
        method, state = self._method, self.method_state
        parameters = state.actor_parameters(self.actor)
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        log.add(actor_loss=actor_loss)
        # Before differentiating, so that new gradients reuse the memory.
        self.actor.optimizer.zero_grad()
        if not trained:  # the whole actor is frozen, while the critics learn
            return
        if method.actor:
            # With dropout or batch normalisation, the policy in eval mode must be smooth.
            acting = type(policy)(self.actor, state, eval_mode=True) if self._has_modes else policy
            auxiliary = method.actor(
                acting, inputs.smoothness_batch, inputs.noise, **self._settings["actor"]
            )
            log.add(auxiliary_loss=auxiliary)
        if method.actor and method.rule:
            report = backward(
                actor_loss,
                auxiliary,
                parameters,
                rule=method.rule,
                state=state.rule_state,
                process_group=None,  # SB3 trains in one process
                **self._settings["rule"],
            )
            state.set_rule_state(report.state)
            log.add_report(report)
        else:
            loss = actor_loss + auxiliary if method.actor else actor_loss
            loss.backward(inputs=trained)
        self._step(self.actor.optimizer)

    def _step(self, optimizer: Optimizer) -> None:
        with fused(optimizer) if self._method.losses else nullcontext():
            optimizer.step()
