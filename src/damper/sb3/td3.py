"""Stable-Baselines3's TD3 with one more argument."""

from __future__ import annotations

from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.utils import polyak_update
from torch import Tensor

from damper.agents import td3
from damper.sb3.log import Log
from damper.sb3.networks import Critic, Policy
from damper.sb3.smooth import Draw, Smooth


class TD3(Smooth, stable_baselines3.TD3):
    """``stable_baselines3.TD3`` whose actor becomes smooth; with ``method="plain"`` it is SB3's, bit for bit."""

    backbone = td3

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Sample the replay buffer and do the updates, in SB3's order and from its random numbers."""
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        log = Log()
        for _ in range(gradient_steps):
            self._n_updates += 1
            draw = self._draw(batch_size)
            policy = Policy(self.actor, self.method_state)
            self._update_critic(self._target(draw), policy, draw, log)
            if self._n_updates % self.policy_delay == 0:
                loss, _ = td3.actor_loss(policy, Critic(self.critic), draw.native, draw.noise, {})
                self._update_actor(loss, policy, draw, log)
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)
                polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
                polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)
            self.method_state.follow(self.actor)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        log.write(self.logger)

    @torch.no_grad()
    def _target(self, draw: Draw) -> Tensor:
        # Drawn at its scale, as SB3 does: scaling a standard normal may round differently.
        noise = {"target": draw.native.action.clone().normal_(0, self.target_policy_noise)}
        hyper: dict[str, Any] = {"target_policy_noise": 1.0, "target_noise_clip": self.target_noise_clip}
        hyper["gamma"] = draw.gamma
        return td3.target(Policy(self.actor_target), Critic(self.critic_target), draw.native, noise, hyper)
