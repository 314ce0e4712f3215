"""DDPG on Pendulum-v1 in the style of skrl: models that `act` in a role, an agent with `_update`.

What DAMPER adds is marked with "damper:".
"""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import damper

DEFAULT_CONFIG = {
    "batch_size": 256,
    "discount_factor": 0.98,
    "polyak": 0.005,
    "learning_rate": 1e-3,
    "random_timesteps": 500,
    "learning_starts": 500,
    "damper": {"enabled": True, "eta": 1.0},  # damper: a block of its own
}


class Model(nn.Module):
    """Like skrl's deterministic mixin: `act` returns outputs and a dictionary."""

    def __init__(self, size: int, outputs: int, squash: bool = False) -> None:
        super().__init__()
        layers = [
            nn.Linear(size, 64),
            nn.SiLU(),
            nn.Linear(64, 64),
            nn.SiLU(),
            nn.Linear(64, outputs),
        ]
        self.net = nn.Sequential(*layers, nn.Tanh() if squash else nn.Identity())

    def act(self, inputs: dict[str, torch.Tensor], role: str = "") -> tuple[torch.Tensor, dict]:
        parts = [inputs["states"]] + ([inputs["taken_actions"]] if role == "critic" else [])
        return self.net(torch.cat(parts, dim=1)), {}


class Memory:
    def __init__(self) -> None:
        self.samples: list[tuple] = []

    def add_samples(self, *sample) -> None:
        self.samples.append(sample)

    def sample(self, batch_size: int, rng: np.random.Generator) -> list[torch.Tensor]:
        rows = [self.samples[i] for i in rng.integers(len(self.samples), size=batch_size)]
        return [
            torch.as_tensor(np.array(column, np.float32)).reshape(batch_size, -1)
            for column in zip(*rows)
        ]


class Agent:
    def __init__(self, models: dict[str, Model], memory: Memory, cfg: dict) -> None:
        self.models, self.memory, self.cfg, self.tracking_data = models, memory, cfg, {}
        self.policy, self.critic = models["policy"], models["critic"]
        self.target_policy, self.target_critic = models["target_policy"], models["target_critic"]
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), lr=cfg["learning_rate"])
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=cfg["learning_rate"])

    def track_data(self, tag: str, value: torch.Tensor) -> None:
        self.tracking_data.setdefault(tag, []).append(value.detach())

    def _update(self, rng: np.random.Generator) -> None:
        states, actions, rewards, next_states, terminated = self.memory.sample(
            self.cfg["batch_size"], rng
        )
        with torch.no_grad():
            next_actions, _ = self.target_policy.act({"states": next_states}, role="policy")
            inputs = {"states": next_states, "taken_actions": next_actions}
            target_q, _ = self.target_critic.act(inputs, role="critic")
            target_values = rewards + self.cfg["discount_factor"] * (1 - terminated) * target_q
        critic_values, _ = self.critic.act(
            {"states": states, "taken_actions": actions}, role="critic"
        )
        critic_loss = F.mse_loss(critic_values, target_values)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        actions, _ = self.policy.act({"states": states}, role="policy")
        critic_values, _ = self.critic.act(
            {"states": states, "taken_actions": actions}, role="critic"
        )
        policy_loss = -critic_values.mean()
        self.policy_optimizer.zero_grad()
        if self.cfg["damper"]["enabled"]:
            self._backward(policy_loss, states, next_states, terminated)
        else:
            policy_loss.backward()
        self.policy_optimizer.step()
        for target, online in (
            (self.target_policy, self.policy),
            (self.target_critic, self.critic),
        ):
            for t, o in zip(target.parameters(), online.parameters()):
                t.data.lerp_(o.data, self.cfg["polyak"])

    def _backward(self, policy_loss, states, next_states, terminated) -> None:
        # damper: the policy as a function of states; the rest is one call and what it tells
        def policy(s: torch.Tensor) -> torch.Tensor:
            return self.policy.act({"states": s}, role="policy")[0]

        temporal_loss = damper.temporal_loss(policy, states, next_states, mask=terminated == 0)
        eta = self.cfg["damper"]["eta"]
        report = damper.backward(policy_loss, temporal_loss, self.policy.parameters(), eta=eta)
        self.track_data("Damper / conflict rate", report.conflict.float())
        self.track_data("Loss / Temporal loss", temporal_loss)


def main(steps: int = 10_000, seed: int = 0) -> dict[str, float]:
    torch.manual_seed(seed)
    rng, env, cfg = np.random.default_rng(seed), gym.make("Pendulum-v1"), DEFAULT_CONFIG
    models = {"policy": Model(3, 1, squash=True), "critic": Model(4, 1)}
    models |= {f"target_{name}": copy.deepcopy(model) for name, model in models.items()}
    agent = Agent(models, Memory(), cfg)
    states, _ = env.reset(seed=seed)
    for timestep in range(steps):
        with torch.no_grad():
            actions = agent.policy.act({"states": torch.as_tensor(states)[None]}, role="policy")[0][
                0
            ].numpy()
        noisy = (actions + 0.1 * rng.standard_normal(1)).clip(-1, 1)
        actions = rng.uniform(-1, 1, 1) if timestep < cfg["random_timesteps"] else noisy
        next_states, reward, terminated, truncated, _ = env.step((2.0 * actions).astype(np.float32))
        agent.memory.add_samples(states, actions, reward, next_states, terminated)
        states = env.reset()[0] if terminated or truncated else next_states
        if timestep >= min(cfg["learning_starts"], steps // 2):
            agent._update(rng)
    return {tag: torch.stack(values).mean().item() for tag, values in agent.tracking_data.items()}


if __name__ == "__main__":
    print(main())
