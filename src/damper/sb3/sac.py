"""Stable-Baselines3's SAC with one more argument."""

from __future__ import annotations

from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.utils import polyak_update
from torch import Tensor

from damper.agents import sac
from damper.sb3.log import Log
from damper.sb3.networks import Critic, GaussianPolicy
from damper.sb3.smooth import Draw, Smooth

_NO_NOISE: Any = {"target": None, "policy": None}  # the actor draws for itself


class SAC(Smooth, stable_baselines3.SAC):
    """``stable_baselines3.SAC`` whose mean action becomes smooth; with ``method="plain"`` it is SB3's, bit for bit."""

    backbone = sac

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Sample the replay buffer and do the updates, in SB3's order and from its random numbers."""
        self.policy.set_training_mode(True)
        temperature = [] if self.ent_coef_optimizer is None else [self.ent_coef_optimizer]
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer, *temperature])
        log = Log()
        for step in range(gradient_steps):
            draw = self._draw(batch_size)
            if self.use_sde:
                self.actor.reset_noise()
            policy = GaussianPolicy(self.actor, self.method_state)
            hyper: dict[str, Any] = {"gamma": draw.gamma, "ent_coef": self._temperature(policy, draw, log)}
            self._update_critic(self._target(policy, draw, hyper), policy, draw, log)
            loss, _ = sac.actor_loss(policy, Critic(self.critic), draw.native, _NO_NOISE, hyper, _sampler)
            self._update_actor(loss, policy, draw, log)
            if step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
            self.method_state.follow(self.actor)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        log.write(self.logger)

    def _temperature(self, policy: GaussianPolicy, draw: Draw, log: Log) -> Tensor:
        """α for this step, then one step on ``J(log α) = −log α · mean(log π + H̄)`` if it is learned."""
        _, log_prob = policy.sample(draw.native.obs)
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            log.add(ent_coef=self.ent_coef_tensor)
            return self.ent_coef_tensor
        ent_coef = self.log_ent_coef.detach().exp()
        loss = -(self.log_ent_coef * (log_prob.reshape(-1, 1) + float(self.target_entropy)).detach()).mean()
        log.add(ent_coef=ent_coef, ent_coef_loss=loss)
        self.ent_coef_optimizer.zero_grad()
        loss.backward()
        self.ent_coef_optimizer.step()
        return ent_coef

    def _target(self, policy: GaussianPolicy, draw: Draw, hyper: dict[str, Any]) -> Tensor:
        if self._method.actor and draw.smooth.next_obs is draw.native.next_obs and not self._has_modes:
            policy.parameters(draw.native.next_obs)  # with its graph: the smoothness loss looks at s' too
        with torch.no_grad():
            return sac.target(policy, Critic(self.critic_target), draw.native, _NO_NOISE, hyper, _sampler)


def _sampler(policy: GaussianPolicy, obs: Any, epsilon: Tensor) -> tuple[Tensor, Tensor]:
    """SB3's own draw."""
    return policy.sample(obs)
