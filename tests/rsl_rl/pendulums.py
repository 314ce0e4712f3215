"""Pendulums that swing together, as rsl_rl's environments do, and a runner's configuration."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict


class Pendulums(VecEnv):
    """``num_envs`` pendulums.

    An episode ends when one turns too fast (a termination) or after ``length`` steps.
    Beside what a policy needs stands a group "tag" (episode, step), which no policy sees.
    """

    num_actions = 1
    cfg: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, num_envs: int = 64, length: int = 40, device: str = "cpu", seed: int = 0
    ) -> None:
        self.num_envs, self.max_episode_length, self.device = num_envs, length, device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.state = torch.zeros(num_envs, 2, device=device)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long, device=device)
        self.episode = torch.zeros(num_envs, device=device)
        self.reset(torch.ones(num_envs, dtype=torch.bool, device=device))

    def reset(self, which: torch.Tensor) -> None:
        drawn = torch.rand(self.num_envs, 2, generator=self.generator, device=self.device) * 2 - 1
        self.state = torch.where(which[:, None], drawn, self.state)
        self.episode = self.episode + which
        self.episode_length_buf = torch.where(which, 0, self.episode_length_buf)

    def get_observations(self) -> TensorDict:
        angle, speed = self.state.unbind(-1)
        seen = torch.stack([angle.cos(), angle.sin()], -1)
        tag = torch.stack([self.episode, self.episode_length_buf.float()], -1)
        groups = {"policy": seen, "speed": speed[:, None], "tag": tag}
        return TensorDict(groups, batch_size=[self.num_envs], device=self.device)

    def step(
        self, actions: torch.Tensor
    ) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        angle, speed = self.state.unbind(-1)
        speed = speed + 0.05 * (10.0 * angle.sin() + 3.0 * actions[:, 0].clamp(-2, 2))
        angle = angle + 0.05 * speed
        self.state = torch.stack([angle, speed], -1)
        self.episode_length_buf = self.episode_length_buf + 1
        rewards = angle.cos() - 0.1 * speed.square()
        fell, late = speed.abs() > 6.0, self.episode_length_buf >= self.max_episode_length
        self.reset(fell | late)
        return self.get_observations(), rewards, (fell | late).long(), {"time_outs": late & ~fell}


def config(**algorithm: Any) -> dict[str, Any]:
    """Small networks; both groups that tell the state."""
    hidden = {
        "class_name": "MLPModel",
        "hidden_dims": [16, 16],
        "activation": "elu",
        "obs_normalization": True,
    }
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    settings = {
        "class_name": "damper.rsl_rl:PPO",
        "num_learning_epochs": 2,
        "num_mini_batches": 2,
        **algorithm,
    }
    return {
        "num_steps_per_env": 16,
        "save_interval": 1000,
        "obs_groups": {"actor": ["policy", "speed"], "critic": ["policy", "speed"]},
        "actor": {**hidden, "distribution_cfg": gaussian},
        "critic": dict(hidden),
        "algorithm": settings,
    }


def train(
    count: int = 20,
    env: Pendulums | None = None,
    cfg: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """A runner after ``count`` iterations from one seed."""
    torch.manual_seed(3)
    runner = OnPolicyRunner(env or Pendulums(), cfg or config(**settings), device="cpu")
    runner.learn(count)
    return runner


def weights(runner: Any) -> torch.Tensor:
    """Parameters and normalisers' statistics of actor and critic."""
    models = (runner.alg.actor, runner.alg.critic)
    return torch.cat(
        [tensor.double().reshape(-1) for model in models for tensor in model.state_dict().values()]
    )
