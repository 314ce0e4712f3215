"""TD3 on Pendulum-v1 in PyTorch. td3_loop_plain.py and td3_loop_damper.py differ in one line."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import torch
from torch import nn

import damper

GAMMA, TAU, DELAY, BATCH, WARM_UP = 0.98, 0.005, 2, 256, 500


def network(inputs: int, outputs: int, *last: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 64),
        nn.SiLU(),
        nn.Linear(64, 64),
        nn.SiLU(),
        nn.Linear(64, outputs),
        *last,
    )


class Agent:
    def __init__(self, obs_dim: int, act_dim: int) -> None:
        self.actor = network(obs_dim, act_dim, nn.Tanh())
        self.critics = nn.ModuleList(network(obs_dim + act_dim, 1) for _ in range(2))
        self.targets = copy.deepcopy(nn.ModuleList([self.actor, self.critics]))
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimiser = torch.optim.Adam(self.critics.parameters(), lr=1e-3)

    def update(self, batch: list[torch.Tensor], delayed: bool) -> None:
        obs, action, reward, next_obs, done = batch
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)
            next_action = (self.targets[0](next_obs) + noise).clamp(-1, 1)
            next_value = torch.min(
                *(q(torch.cat([next_obs, next_action], 1)) for q in self.targets[1])
            )
            target = reward + GAMMA * (1 - done) * next_value
        critic_loss = sum(
            nn.functional.mse_loss(q(torch.cat([obs, action], 1)), target) for q in self.critics
        )
        self.critic_optimiser.zero_grad()
        critic_loss.backward()
        self.critic_optimiser.step()
        if delayed:
            return
        actor = self.actor
        actor_loss = -self.critics[0](torch.cat([obs, actor(obs)], 1)).mean()
        self.actor_optimiser.zero_grad()
        actor_loss.backward()
        self.actor_optimiser.step()
        for target, online in zip(
            self.targets.parameters(), [*self.actor.parameters(), *self.critics.parameters()]
        ):
            target.data.lerp_(online.data, TAU)


def main(steps: int = 10_000, seed: int = 0) -> dict[str, float]:
    torch.manual_seed(seed)
    env, random = gymnasium.make("Pendulum-v1"), np.random.default_rng(seed)
    high = env.action_space.high
    agent, replay = Agent(3, 1), []
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        with torch.no_grad():
            action = agent.actor(torch.as_tensor(obs)[None])[0].numpy()
        action = action + 0.1 * random.standard_normal(1)
        action = random.uniform(-1, 1, 1) if step < WARM_UP else action.clip(-1, 1)
        next_obs, reward, terminated, truncated, _ = env.step((high * action).astype(np.float32))
        replay.append(
            np.concatenate([obs, action, [reward], next_obs, [terminated]]).astype(np.float32)
        )
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step >= BATCH:
            rows = torch.as_tensor(
                np.stack([replay[i] for i in random.integers(len(replay), size=BATCH)])
            )
            agent.update(list(rows.split([3, 1, 1, 3, 1], dim=1)), delayed=step % DELAY != 0)
    return evaluate(agent.actor, env)


@torch.no_grad()
def evaluate(actor: nn.Module, env: gymnasium.Env, episodes: int = 10) -> dict[str, float]:
    """Episodes without noise: means of the return, of the paper's score and of mean |Δa|."""
    rows = []
    for seed in range(episodes):
        (obs, _), total, actions, over = env.reset(seed=seed), 0.0, [], False
        while not over:
            actions.append(env.action_space.high * actor(torch.as_tensor(obs)[None])[0].numpy())
            obs, reward, terminated, truncated, _ = env.step(actions[-1])
            total, over = total + float(reward), terminated or truncated
        scores = damper.metrics.summary(np.array(actions), -2.0, 2.0)
        rows.append((total, scores["sm"], scores["mean_change"]))
    return dict(zip(("return", "sm", "mean_change"), np.mean(rows, axis=0).tolist()))


if __name__ == "__main__":
    print(main())
