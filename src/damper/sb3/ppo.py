"""Stable-Baselines3's PPO with one more argument."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from torch import Tensor, nn

from damper._backward import after_backward, backward_auxiliary
from damper.engine.envs.pool import action_scale
from damper.errors import DamperError
from damper.interface import Batch
from damper.method_args import check_no_critic_loss
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.buffers import indexed, indexed_class
from damper.sb3.common.log import Log
from damper.sb3.common.mixin import DefaultEta, SmoothMixin, init_arguments
from damper.sb3.common.networks import OnPolicyActor, actor_parameters, split


class PPO(SmoothMixin, stable_baselines3.PPO):
    """``stable_baselines3.PPO`` whose mean action becomes smooth; with ``method="plain"`` it is SB3's, bit for bit.

    SB3's whole loss (surrogate, value, entropy) is the primary one. The auxiliary one compares the
    mean actions at consecutive observations of an environment. They are combined on the parameters
    that the action distribution depends on, with norms over those that the value function does not
    share; then SB3 clips and steps.

    Args:
        policy: as in SB3, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, or a ``Method``; with a loss on the actor alone.
        eta: DAMPER's η in [0, 1]: 0 is the least smoothing; at 1, the most, PPO may learn nothing.
            Or a schedule, as for ``learning_rate``.
        rule: another rule for the auxiliary gradient: a name in ``damper.rules.RULES``, or a
            callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "l2c2".
        **settings: the method's own settings, such as ``lambda_T`` of "caps".

    Example:
        >>> from damper.sb3 import PPO
        >>> model = PPO("MlpPolicy", "Pendulum-v1", eta=0.5, n_steps=64).learn(64)
    """

    _default_eta = DefaultEta(0.0)

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
        eta: float | str | Schedule = _default_eta,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**init_arguments(locals()))

    def _check_method(self) -> None:
        method = self._method
        if not method.losses:
            return
        if not isinstance(self.action_space, gymnasium.spaces.Box):
            raise DamperError(
                f"the action space must be a Box for method {method.name!r}, which compares mean "
                "actions, but is "
                f"{self.action_space}: only method='plain' takes others."
            )
        check_no_critic_loss(method, "critics Q(s, a), while PPO's critic is V(s)")
        if method.prediction:
            raise DamperError(
                f"method {method.name!r} needs a second head on the actor and its Polyak average, "
                "which PPO's policy "
                "does not have: choose another, such as 'grad-caps'."
            )

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.policy.squash_output:
            space = self.action_space
            self._action_scale = torch.as_tensor(
                action_scale(space.low, space.high), device=self.device
            ).reshape(-1)

    def _check_buffer(self) -> None:
        if self._method.actor:
            indexed_class(self.rollout_buffer, self._method.name)

    @property
    def _actor(self) -> nn.Module:
        return self.policy

    def _actor_parameters(self) -> list[nn.Parameter]:
        return actor_parameters(self.policy)[0] if self._method.actor else []

    def collect_rollouts(self, *arguments: Any, **keywords: Any) -> bool:
        """SB3's, and keeps the observations after the last step, as successors of the last rows."""
        going: bool = super().collect_rollouts(*arguments, **keywords)
        if going and self._method.actor:
            with indexed(self.rollout_buffer, self._method.name) as buffer:
                buffer.finish(self._last_obs, self._last_episode_starts)
        return going

    def train(self) -> None:
        """SB3's; after each backward pass the auxiliary gradient is combined with that of SB3's loss."""
        if not self._method.actor:
            super().train()
            return
        log, (own, shared) = Log(), actor_parameters(self.policy)
        add_auxiliary = after_backward(
            [*own, *shared], lambda: self._add_auxiliary(own, shared, log)
        )
        with indexed(self.rollout_buffer, self._method.name), add_auxiliary:
            super().train()
        log.write(self.logger)

    def _add_auxiliary(self, own: list[nn.Parameter], shared: list[nn.Parameter], log: Log) -> None:
        """Combine the auxiliary gradient with ``.grad``; a minibatch without a pair leaves it as it is."""
        method, state = self._method, self.method_state
        # With dropout or batch normalisation, the policy in eval mode is the one that must be
        # smooth.
        policy = OnPolicyActor(self.policy, state, eval_mode=self._has_modes)
        batch = self._pairs(policy)
        if method.actor is None or batch is None:
            return
        noise = {name: kind.draw(batch, self._generator) for name, kind in method.noise.items()}
        auxiliary = method.actor(policy, batch, noise, **self._loss_settings())
        log.add(auxiliary_loss=auxiliary)
        if method.rule is None:
            auxiliary.backward(inputs=[*own, *shared])
            return
        settings = self._settings["rule"]
        report = backward_auxiliary(
            auxiliary, own, method.rule, state.rule_state, shared=shared, **settings
        )
        state.set_rule_state(report.state)
        log.add_report(report)

    def _loss_settings(self) -> dict[str, Any]:
        """The loss's settings; no pair of a rollout ends in a termination, so there is nothing to mask."""
        settings = self._settings["actor"]
        return {**settings, "mask_terminal": False} if "mask_terminal" in settings else settings

    def _pairs(self, policy: OnPolicyActor) -> Batch | None:
        """The last minibatch's pairs, for one forward pass of the policy over all; None without a pair."""
        buffer: Any = self.rollout_buffer
        previous = self._method.previous_obs
        rows = buffer.pairs(previous)
        if len(rows) == 0:
            return None
        observed = [rows, buffer.after(rows), *([buffer.before(rows)] if previous else [])]
        joined = buffer.take(np.concatenate(observed))
        policy.join(joined, parts := split(joined, len(observed)))
        rewards: Tensor = buffer.to_torch(buffer.flat_rewards[rows], copy=False)
        return Batch(
            parts[0],
            buffer.to_torch(buffer.actions[rows], copy=False),
            rewards,
            parts[1],
            torch.zeros_like(rewards),
            previous_obs=parts[2] if previous else None,
            progress=1.0 - self._current_progress_remaining,
            action_scale=self._action_scale,
        )
