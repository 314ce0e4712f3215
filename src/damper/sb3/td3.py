"""Stable-Baselines3's TD3 and DDPG with one more argument."""

from __future__ import annotations

from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.td3.policies import TD3Policy
from torch import Tensor

from damper.agents import td3
from damper.method_args import ETA
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.common.log import Log
from damper.sb3.common.mixin import init_arguments
from damper.sb3.common.networks import SB3Critic, SB3Policy
from damper.sb3.common.off_policy import OffPolicyMixin, UpdateInputs


class TD3Base(OffPolicyMixin, stable_baselines3.TD3):
    """The update of TD3, and of DDPG, which is a kind of TD3 in SB3."""

    backbone = td3

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Sample and update, in SB3's order and from its random numbers."""
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        log = Log()
        for _ in range(gradient_steps):
            self._n_updates += 1
            inputs = self._sample_inputs(batch_size)
            policy = SB3Policy(self.actor, self.method_state)
            self._update_critic(self._target(inputs), policy, inputs, log)
            if self._n_updates % self.policy_delay == 0:
                critic = SB3Critic(self.critic)
                loss, _ = td3.actor_loss(policy, critic, inputs.sb3_batch, inputs.noise, {})
                self._update_actor(loss, policy, inputs, log)
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)
                polyak_update(
                    self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0
                )
                polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)
            self.method_state.update_average(self.actor)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        log.write(self.logger)

    @torch.no_grad()
    def _target(self, inputs: UpdateInputs) -> Tensor:
        policy, critic = SB3Policy(self.actor_target), SB3Critic(self.critic_target)
        # Drawn with its standard deviation, as in SB3: a scaled normal may round otherwise.
        noise = {"target": inputs.sb3_batch.action.clone().normal_(0, self.target_policy_noise)}
        hparams = {
            "gamma": inputs.gamma,
            "target_policy_noise": 1.0,
            "target_noise_clip": self.target_noise_clip,
        }
        return td3.target(policy, critic, inputs.sb3_batch, noise, hparams)


class TD3(TD3Base):
    """``stable_baselines3.TD3`` made smooth; with ``method="plain"`` SB3's, bit for bit.

    Args:
        policy: as in SB3, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, as "damper+grad-caps+pave", or a ``Method``.
        eta: DAMPER's η in [0, 1], from least to most smoothing; or a schedule like SB3's.
        rule: another rule for the auxiliary gradient: in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "asap", "l2c2".
        critic: an additional loss on the critic: "pave" or "l2c2".
        **settings: the method's own settings, such as ``lambda_T`` of "caps".

    Example:
        >>> from damper.sb3 import TD3
        >>> model = TD3("MlpPolicy", "Pendulum-v1", learning_starts=50, buffer_size=1000)
        >>> model = model.learn(60)
    """

    def __init__(
        self,
        policy: str | type[TD3Policy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,
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
        policy_delay: int = 2,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
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


class DDPG(TD3Base, stable_baselines3.DDPG):
    """``stable_baselines3.DDPG`` made smooth; with ``method="plain"`` SB3's, bit for bit.

    Args:
        policy: as in SB3, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, as "damper+grad-caps+pave", or a ``Method``.
        eta: DAMPER's η in [0, 1], from least to most smoothing; or a schedule like SB3's.
        rule: another rule for the auxiliary gradient: in ``damper.rules.RULES``, or a callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "asap", "l2c2".
        critic: an additional loss on the critic: "pave" or "l2c2".
        **settings: the method's own settings, such as ``lambda_T`` of "caps".

    Example:
        >>> from damper.sb3 import DDPG
        >>> model = DDPG("MlpPolicy", "Pendulum-v1", learning_starts=50, buffer_size=1000)
        >>> model = model.learn(60)
    """

    def __init__(
        self,
        policy: str | type[TD3Policy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,
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
