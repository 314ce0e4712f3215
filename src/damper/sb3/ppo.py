"""Stable-Baselines3's PPO with one more argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from torch import Tensor, nn

from damper._backward import after_backward, auxiliary_gradients, combine_gradients
from damper.errors import DamperError
from damper.interface import Batch
from damper.method_args import PPO_ETA, check_no_critic_loss
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.buffers import indexed, indexed_class
from damper.sb3.common.fused import fused
from damper.sb3.common.log import Log
from damper.sb3.common.mixin import SmoothMixin, init_arguments
from damper.sb3.common.networks import (
    OnPolicyActor,
    actor_parameters,
    evaluate_jointly,
    evaluates_jointly,
    split,
)


class OnPolicyMixin(SmoothMixin):
    """Mixin before an SB3 on-policy class; at η = 1, right off-policy, it may learn nothing."""

    _default_eta = PPO_ETA
    _on_policy = True

    @property
    def _actor(self) -> nn.Module:
        return self.policy

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.policy.squash_output:
            self._set_action_scale()

    def _check_method(self) -> None:
        method = self._method
        if not method.losses:
            return
        if not isinstance(self.action_space, gymnasium.spaces.Box):
            raise DamperError(
                f"the action space must be a Box for method {method.name!r}, which compares mean "
                f"actions, but is {self.action_space}: only method='plain' takes others."
            )
        check_no_critic_loss(method, "critics Q(s, a), while PPO's critic is V(s)")
        if method.prediction:
            raise DamperError(
                f"method {method.name!r} needs a second head on the actor and its Polyak average, "
                "which PPO's policy does not have: choose another, such as 'grad-caps'."
            )

    def _unscale(self, actions: NDArray[Any]) -> NDArray[Any]:
        if self.policy.squash_output:
            return super()._unscale(actions)
        return np.clip(actions, self.action_space.low, self.action_space.high)

    def collect_rollouts(self, *arguments: Any, **keywords: Any) -> bool:
        """SB3's, and keeps the actions without exploration noise for the log."""
        with self._trace.watch(self.policy):
            return super().collect_rollouts(*arguments, **keywords)  # type: ignore[misc]

    def _combine(
        self,
        loss: Tensor,
        gradients: Any,
        parameters: list[nn.Parameter],
        shared_count: int,
        log: Log,
    ) -> None:
        """Combine the auxiliary loss's gradients with ``.grad``; the last of them are shared."""
        rule, state = self._method.rule, self.method_state
        log.add(auxiliary_loss=loss)
        if rule is None:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    primary = parameter.grad
                    parameter.grad = gradient if primary is None else primary + gradient
            return
        report = combine_gradients(
            gradients,
            parameters,
            rule,
            state.rule_state,
            loss.detach(),
            shared_count=shared_count,
            **self._settings["rule"],
        )
        state.set_rule_state(report.state)
        log.add_report(report)


class PPO(OnPolicyMixin, stable_baselines3.PPO):
    """``stable_baselines3.PPO`` made smooth; with ``method="plain"`` SB3's, bit for bit.

    SB3's whole loss (surrogate, value, entropy) is the primary one. The auxiliary one compares the
    mean actions at consecutive observations of an environment. They are combined on the parameters
    that the action distribution depends on, with norms over those that the value function does not
    share; then SB3 clips and steps.

    Args:
        policy: as in SB3, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, or a ``Method``; with a loss on the actor alone.
        eta: DAMPER's η in [0, 1], or a schedule; at 1, the most smoothing, PPO may learn nothing.
        rule: another rule for the auxiliary gradient: in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "l2c2".
        **settings: the method's own settings, such as ``lambda_T`` of "caps".

    Example:
        >>> from damper.sb3 import PPO
        >>> model = PPO("MlpPolicy", "Pendulum-v1", eta=0.5, n_steps=64).learn(64)
    """

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        method: str | Method = "damper",
        eta: float | str | Schedule = PPO_ETA,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**init_arguments(locals()))

    def _check_buffer(self) -> None:
        if self._method.actor:
            indexed_class(self.rollout_buffer, self._method.name)

    def _actor_parameters(self) -> list[nn.Parameter]:
        return actor_parameters(self.policy)[0] if self._method.actor else []

    def collect_rollouts(self, *arguments: Any, **keywords: Any) -> bool:
        """SB3's, and keeps the observations after the last step, as successors of the last rows."""
        going = super().collect_rollouts(*arguments, **keywords)
        if going and self._method.actor:
            with indexed(self.rollout_buffer, self._method.name) as buffer:
                buffer.finish(self._last_obs, self._last_episode_starts)
        return going

    def train(self) -> None:
        """SB3's; after each backward pass the auxiliary gradient is combined with SB3's."""
        if not self._method.actor:
            super().train()
            return
        update = AuxiliaryUpdate(self)
        rows = indexed(self.rollout_buffer, self._method.name)
        with rows, update.running(), fused(self.policy.optimizer):
            super().train()
        update.log.write(self.logger)


class AuxiliaryUpdate:
    """What a call of ``train`` adds to SB3's: auxiliary gradients, combined with SB3's.

    With SB3's own policies both losses share one forward pass, which stands in for SB3's
    ``evaluate_actions``. Others get a pass of their own, after SB3's backward pass.
    """

    def __init__(self, model: PPO) -> None:
        self.model, self.log = model, Log()
        self.policy = model.policy
        self.buffer: Any = model.rollout_buffer  # of the class that records its samples' rows
        separate, self.shared = actor_parameters(model.policy)
        self.parameters = [*separate, *self.shared]
        self.trained = [parameter for parameter in self.parameters if parameter.requires_grad]
        self.joint = bool(self.trained) and evaluates_jointly(model.policy) and not model._has_modes
        # The minibatch's auxiliary loss and its gradients, where one forward pass gave both losses.
        self.waiting: tuple[Tensor, Any] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within the context, SB3's backward passes end with the combined gradient in ``.grad``."""
        if self.joint:
            self.policy.evaluate_actions = self._evaluate
        try:
            with after_backward(self.trained, self._combine):
                yield
        finally:
            if self.joint:
                del self.policy.evaluate_actions

    def _evaluate(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """SB3's ``evaluate_actions``; keeps the auxiliary loss's gradients for ``_combine``."""
        kept, (rows, *around) = self.buffer.pairs(self.model._method.previous_obs)
        if len(rows) == 0:
            self.waiting = None
            return ActorCriticPolicy.evaluate_actions(self.policy, obs, actions)
        joined = torch.cat([obs, self.buffer.take(np.concatenate(around))])
        result, mean = evaluate_jointly(self.policy, joined, len(obs), actions)
        sizes = [len(obs), *map(len, around)]
        parts, means = list(joined.split(sizes)), list(mean.split(sizes))
        if len(rows) < len(obs):
            index = torch.as_tensor(np.flatnonzero(kept), device=obs.device)
            parts[0], means[0] = parts[0][index], means[0][index]
        actor = OnPolicyActor(self.policy)
        for part, action in zip(parts, means, strict=True):
            actor.remember(part, action)
        loss = self._loss(actor, rows, parts)
        self.waiting = loss, auxiliary_gradients(loss, self.parameters)
        return result

    def _combine(self) -> None:
        """Combine the auxiliary gradient with ``.grad``, if the minibatch has a pair."""
        waiting = self.waiting if self.joint else self._separate_pass()
        self.waiting = None
        if waiting is None:
            return
        loss, gradients = waiting
        self.model._combine(loss, gradients, self.parameters, len(self.shared), self.log)

    def _separate_pass(self) -> tuple[Tensor, Any] | None:
        """The auxiliary loss and its gradients from a pass over the pairs; None without pairs."""
        _, rows = self.buffer.pairs(self.model._method.previous_obs)
        if len(rows[0]) == 0:
            return None
        joined = self.buffer.take(np.concatenate(rows))
        # With dropout or batch normalisation, the policy in eval mode must be smooth.
        actor = OnPolicyActor(self.policy, eval_mode=self.model._has_modes)
        actor.join(joined, parts := split(joined, len(rows)))
        loss = self._loss(actor, rows[0], parts)
        return loss, auxiliary_gradients(loss, self.parameters)

    def _loss(self, actor: OnPolicyActor, rows: NDArray[np.int64], parts: Sequence[Any]) -> Tensor:
        """The method's loss on these rows; ``parts`` are their observations and those around."""
        model, buffer = self.model, self.buffer
        method, settings = model._method, model._settings["actor"]
        assert method.actor is not None
        if "mask_terminal" in settings:  # no pair of a rollout ends in a termination
            settings = {**settings, "mask_terminal": False}
        rewards: Tensor = buffer.to_torch(buffer.flat_rewards[rows], copy=False)
        batch = Batch(
            parts[0],
            buffer.to_torch(buffer.actions[rows], copy=False),
            rewards,
            parts[1],
            torch.zeros_like(rewards),
            previous_obs=parts[2] if method.previous_obs else None,
            progress=1.0 - model._current_progress_remaining,
            action_scale=model._action_scale,
        )
        return method.actor(actor, batch, model._draw_noise(batch), **settings)
