"""SAC on Pendulum-v1 in the style of CleanRL: one file, vectorised, `Actor.get_action`.

What DAMPER adds is marked with "damper:". The other thing to look at is `real_next_obs`: at an
episode's end the temporal loss needs the final observation, not the first one of the next episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import damper


@dataclass
class Args:
    seed: int = 1
    num_envs: int = 4
    total_timesteps: int = 20_000
    learning_starts: int = 500
    batch_size: int = 256
    gamma: float = 0.99
    tau: float = 0.005
    learning_rate: float = 1e-3
    alpha: float = 0.2
    eta: float = 1.0  # damper: the one setting


class SoftQNetwork(nn.Module):
    def __init__(self, envs):
        super().__init__()
        size = envs.single_observation_space.shape[0] + envs.single_action_space.shape[0]
        self.fc1, self.fc2, self.fc3 = nn.Linear(size, 64), nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, x, a):
        return self.fc3(F.silu(self.fc2(F.silu(self.fc1(torch.cat([x, a], 1))))))


class Actor(nn.Module):
    def __init__(self, envs):
        super().__init__()
        space = envs.single_action_space
        self.fc1 = nn.Linear(envs.single_observation_space.shape[0], 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc_mean, self.fc_logstd = nn.Linear(64, space.shape[0]), nn.Linear(64, space.shape[0])
        self.register_buffer("action_scale", torch.tensor((space.high - space.low) / 2.0))
        self.register_buffer("action_bias", torch.tensor((space.high + space.low) / 2.0))

    def forward(self, x):
        x = F.silu(self.fc2(F.silu(self.fc1(x))))
        return self.fc_mean(x), self.fc_logstd(x).clamp(-5, 2)

    def get_action(self, x):
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
        action = y_t * self.action_scale + self.action_bias
        return (
            action,
            log_prob.sum(1, keepdim=True),
            torch.tanh(mean) * self.action_scale + self.action_bias,
        )


def train_step(args, data, actor, qfs, qf_targets, q_optimizer, actor_optimizer):
    obs, actions, rewards, next_obs, dones = data
    with torch.no_grad():
        next_actions, next_log_pi, _ = actor.get_action(next_obs)
        min_next = (
            torch.min(*(qf(next_obs, next_actions) for qf in qf_targets)) - args.alpha * next_log_pi
        )
        next_q_value = rewards + (1 - dones) * args.gamma * min_next
    qf_loss = sum(F.mse_loss(qf(obs, actions), next_q_value) for qf in qfs)
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()

    pi, log_pi, _ = actor.get_action(obs)
    actor_loss = (args.alpha * log_pi - torch.min(*(qf(obs, pi) for qf in qfs))).mean()
    # damper: the mean action, not the sampled one, at both ends of each transition that did not
    # terminate
    temporal_loss = damper.temporal_loss(
        lambda x: actor.get_action(x)[2], obs, next_obs, mask=dones == 0
    )
    # damper: in place of actor_optimizer.zero_grad() and actor_loss.backward()
    report = damper.backward(actor_loss, temporal_loss, actor.parameters(), eta=args.eta)
    actor_optimizer.step()

    for qf, target in zip(qfs.parameters(), qf_targets.parameters()):
        target.data.copy_(args.tau * qf.data + (1 - args.tau) * target.data)
    return report


def main(steps: int | None = None) -> dict[str, float]:
    args = (
        Args()
        if steps is None
        else Args(total_timesteps=steps, learning_starts=min(500, steps // 2))
    )
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    mode = gym.vector.AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make("Pendulum-v1")] * args.num_envs, autoreset_mode=mode
    )
    envs.action_space.seed(args.seed)
    actor, qfs = Actor(envs), nn.ModuleList([SoftQNetwork(envs), SoftQNetwork(envs)])
    qf_targets = nn.ModuleList([SoftQNetwork(envs), SoftQNetwork(envs)])
    qf_targets.load_state_dict(qfs.state_dict())
    q_optimizer = optim.Adam(qfs.parameters(), lr=args.learning_rate)
    actor_optimizer = optim.Adam(actor.parameters(), lr=args.learning_rate)
    rb, conflicts = [], []
    obs, _ = envs.reset(seed=args.seed)
    for global_step in range(0, args.total_timesteps, args.num_envs):
        with torch.no_grad():
            actions = actor.get_action(torch.as_tensor(obs))[0].numpy()
        if global_step < args.learning_starts:
            actions = envs.action_space.sample()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        real_next_obs = next_obs.copy()
        for idx in np.flatnonzero(terminations | truncations):
            real_next_obs[idx] = infos["final_obs"][idx]
        rb += zip(obs, actions, rewards, real_next_obs, terminations)
        obs = next_obs
        if global_step > args.learning_starts:
            rows = [rb[i] for i in rng.integers(len(rb), size=args.batch_size)]
            data = [
                torch.as_tensor(np.array(column, np.float32)).reshape(len(rows), -1)
                for column in zip(*rows)
            ]
            conflicts.append(
                train_step(
                    args, data, actor, qfs, qf_targets, q_optimizer, actor_optimizer
                ).conflict
            )
    envs.close()
    return {"conflict": torch.stack(conflicts).float().mean().item()}


if __name__ == "__main__":
    print(main())
