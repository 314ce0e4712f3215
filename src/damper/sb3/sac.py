"""Stable-Baselines3's SAC with one more argument."""

from __future__ import annotations

from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.sac.policies import SACPolicy
from torch import Tensor

from damper.agents import sac
from damper.method_args import ETA
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.common.log import Log
from damper.sb3.common.mixin import init_arguments
from damper.sb3.common.networks import GaussianPolicy, SB3Critic
from damper.sb3.common.off_policy import OffPolicyMixin, UpdateInputs

HParams = dict[str, Any]
_NO_NOISE: Any = {"target": None, "policy": None}  # SB3's actor draws its own noise


class SACMixin(OffPolicyMixin):
    """The update of SAC; TQC's differs in target and losses."""

    backbone = sac

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Sample and update, in SB3's order and from its random numbers."""
        self.policy.set_training_mode(True)
        temperature = [] if self.ent_coef_optimizer is None else [self.ent_coef_optimizer]
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer, *temperature])
        log = Log()
        for step in range(gradient_steps):
            inputs = self._sample_inputs(batch_size)
            if self.use_sde:
                self.actor.reset_noise()
            policy = GaussianPolicy(self.actor, self.method_state)
            hparams = {"gamma": inputs.gamma, "ent_coef": self._temperature(policy, inputs, log)}
            self._update_critic(self._target(policy, inputs, hparams), policy, inputs, log)
            self._update_actor(self._actor_loss(policy, inputs, hparams), policy, inputs, log)
            if step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
            self.method_state.update_average(self.actor)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        log.write(self.logger)

    def _temperature(self, policy: GaussianPolicy, inputs: UpdateInputs, log: Log) -> Tensor:
        """α for this step; if learned, then a step on ``J(log α) = −log α · mean(log π + H̄)``."""
        _, log_prob = policy.sample(inputs.sb3_batch.obs)
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            log.add(ent_coef=self.ent_coef_tensor)
            return self.ent_coef_tensor
        ent_coef: Tensor = self.log_ent_coef.detach().exp()
        missing = log_prob.detach().reshape(-1, 1) + float(self.target_entropy)
        loss = -(self.log_ent_coef * missing).mean()
        log.add(ent_coef=ent_coef, ent_coef_loss=loss)
        self.ent_coef_optimizer.zero_grad()
        loss.backward()
        self.ent_coef_optimizer.step()
        return ent_coef

    def _target(self, policy: GaussianPolicy, inputs: UpdateInputs, hparams: HParams) -> Tensor:
        smoothed = inputs.smoothness_batch if self._method.actor and not self._has_modes else None
        if smoothed and smoothed.next_obs is inputs.sb3_batch.next_obs:
            # Cached with its graph: the smoothness loss reads s' too.
            policy.parameters(smoothed.next_obs)
        with torch.no_grad():
            return self._bellman(policy, inputs, hparams)

    def _bellman(self, policy: GaussianPolicy, inputs: UpdateInputs, hparams: HParams) -> Tensor:
        critic = SB3Critic(self.critic_target)
        return sac.target(policy, critic, inputs.sb3_batch, _NO_NOISE, hparams, _sampler)

    def _actor_loss(self, policy: GaussianPolicy, inputs: UpdateInputs, hparams: HParams) -> Tensor:
        critic = SB3Critic(self.critic)
        return sac.actor_loss(policy, critic, inputs.sb3_batch, _NO_NOISE, hparams, _sampler)[0]


def _sampler(policy: GaussianPolicy, obs: Any, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """Sample as SB3 does, from torch's global generator; ``epsilon`` is not used."""
    return policy.sample(obs)


class SAC(SACMixin, stable_baselines3.SAC):
    """``stable_baselines3.SAC`` made smooth; with ``method="plain"`` SB3's, bit for bit.

    Args:
        policy: as in SB3, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, as "damper+grad-caps+pave", or a ``Method``.
        eta: DAMPER's η in [0, 1], from least to most smoothing; or a schedule like SB3's.
        rule: another rule for the auxiliary gradient: in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "asap", "l2c2".
        critic: an additional loss on the critic: "pave" or "l2c2".
        **settings: the method's own settings, such as ``lambda_T`` of "caps".

    Example:
        >>> from damper.sb3 import SAC
        >>> model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=50, buffer_size=1000)
        >>> model = model.learn(60)
    """

    def __init__(
        self,
        policy: str | type[SACPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        use_sde_at_warmup: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        method: str | Method = "damper",
        eta: float | str | Schedule = ETA,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        critic: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**init_arguments(locals()))
