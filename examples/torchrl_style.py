"""SAC on Pendulum-v1 in the style of TorchRL: a collector, and a loss module of `loss_*` entries.

TorchRL's own loop adds the losses and calls `backward()` once. DAMPER needs the actor's loss on its
own, which is one entry of the same dictionary: the lines marked with "damper:".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

import damper

Data = dict[str, Tensor]  # stands for a TensorDict


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, outputs)
    )


class Policy(nn.Module):
    """`loc` and `scale` of a tanh normal from an observation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(3, 2)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        loc, log_scale = self.net(observation).chunk(2, -1)
        return loc, log_scale.clamp(-5, 2).exp()

    def mode(self, observation: Tensor) -> Tensor:
        return torch.tanh(self(observation)[0])

    def sample(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        normal = torch.distributions.Normal(*self(observation))
        raw = normal.rsample()
        action = torch.tanh(raw)
        return action, (normal.log_prob(raw) - torch.log(1 - action.square() + 1e-6)).sum(
            -1, keepdim=True
        )


class SACLoss(nn.Module):
    def __init__(self, policy: Policy, gamma: float = 0.98, alpha: float = 0.1) -> None:
        super().__init__()
        self.policy, self.qvalues, self.gamma, self.alpha = (
            policy,
            nn.ModuleList([mlp(4, 1), mlp(4, 1)]),
            gamma,
            alpha,
        )
        self.targets = copy.deepcopy(self.qvalues)

    def value(self, networks: nn.ModuleList, observation: Tensor, action: Tensor) -> Tensor:
        return torch.min(*(q(torch.cat([observation, action], -1)) for q in networks))

    def forward(self, data: Data) -> Data:
        observation, following = data["observation"], data["next_observation"]
        with torch.no_grad():
            action, log_prob = self.policy.sample(following)
            soft = self.value(self.targets, following, action) - self.alpha * log_prob
            target = data["reward"] + self.gamma * (1 - data["terminated"]) * soft
        inputs = torch.cat([observation, data["action"]], -1)
        loss_qvalue = sum((q(inputs) - target).square().mean() for q in self.qvalues)
        action, log_prob = self.policy.sample(observation)
        # The critics are read, not trained, by the actor's loss.
        loss_actor = (self.alpha * log_prob - self.value(self.qvalues, observation, action)).mean()
        # damper: one more entry
        keep = data["terminated"] == 0
        loss_temporal = damper.temporal_loss(self.policy.mode, observation, following, mask=keep)
        return {
            "loss_actor": loss_actor,
            "loss_qvalue": loss_qvalue,
            "loss_temporal": loss_temporal,
        }

    def soft_update(self, tau: float = 0.005) -> None:
        for target, online in zip(self.targets.parameters(), self.qvalues.parameters()):
            target.data.lerp_(online.data, tau)


def collector(policy: Policy, total_frames: int, seed: int) -> Iterator[Data]:
    """One transition at a time, with the true next observation at an episode's end."""
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=seed)
    for _ in range(total_frames):
        with torch.no_grad():
            action = policy.sample(torch.as_tensor(observation)[None])[0][0]
        following, reward, terminated, truncated, _ = env.step(2.0 * action.numpy())
        row = {
            "observation": observation,
            "action": action,
            "reward": [reward],
            "next_observation": following,
        }
        row["terminated"] = [terminated]
        yield {name: torch.as_tensor(value, dtype=torch.float32) for name, value in row.items()}
        observation = env.reset()[0] if terminated or truncated else following


def main(steps: int = 10_000, seed: int = 0) -> dict[str, float]:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    policy = Policy()
    loss_module = SACLoss(policy)
    optim_actor = torch.optim.Adam(policy.parameters(), lr=1e-3)
    optim_qvalue = torch.optim.Adam(loss_module.qvalues.parameters(), lr=1e-3)
    replay_buffer: list[Data] = []
    cosines = []
    for data in collector(policy, steps, seed):
        replay_buffer.append(data)
        if len(replay_buffer) < min(256, steps // 2):
            continue
        rows = [replay_buffer[i] for i in rng.integers(len(replay_buffer), size=256)]
        loss_td = loss_module({name: torch.stack([row[name] for row in rows]) for name in data})
        optim_qvalue.zero_grad()
        loss_td["loss_qvalue"].backward()
        # damper: in place of (loss_actor + ...).backward(); sets the policy's gradients and no
        # others
        report = damper.backward(
            loss_td["loss_actor"], loss_td["loss_temporal"], policy.parameters(), eta=1.0
        )
        optim_qvalue.step()
        optim_actor.step()
        loss_module.soft_update()
        cosines.append(report.cosine)
    return {"cosine": torch.stack(cosines).mean().item()}


if __name__ == "__main__":
    print(main())
