"""TD3 in the style of FastTD3: many environments on one device, large batches, mixed precision.

What DAMPER adds is marked with "damper:". It also shows what `next_observations` and time-outs
mean in such a loop: environments reset themselves, so at an episode's end the observation that
`step` returns belongs to the next episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

import damper


@dataclass
class Args:
    num_envs: int = 256  # thousands on a GPU
    batch_size: int = 1024  # 32,768 in FastTD3
    buffer_size: int = 64  # steps per environment
    learning_starts: int = 4
    num_updates: int = 1  # per step of all environments
    gamma: float = 0.97
    tau: float = 0.1
    learning_rate: float = 3e-4
    max_grad_norm: float = 1.0
    compile: bool = False
    eta: float = 1.0  # damper: the one setting
    seed: int = 1


class Pendulums:
    """Pendulums that reset themselves; `final_obs` is what the policy would have seen without."""

    def __init__(self, num_envs: int, device: str) -> None:
        self.state = torch.zeros(num_envs, 2, device=device)
        self.steps = torch.zeros(num_envs, dtype=torch.long, device=device)
        self.reset(torch.ones(num_envs, dtype=torch.bool, device=device))

    def reset(self, which: Tensor) -> None:
        start = torch.rand_like(self.state) * 2 - 1
        self.state = torch.where(which[:, None], start, self.state)
        self.steps = torch.where(which, 0, self.steps)

    def observe(self) -> Tensor:
        angle, speed = self.state.unbind(-1)
        return torch.stack([angle.cos(), angle.sin(), speed / 6], -1)

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        angle, speed = self.state.unbind(-1)
        speed = speed + 0.05 * (10 * angle.sin() + 6 * actions[:, 0])
        angle = angle + 0.05 * speed
        self.state, self.steps = torch.stack([angle, speed], -1), self.steps + 1
        terminated, time_outs = speed.abs() > 6, self.steps >= 100
        final_obs = self.observe()
        self.reset(terminated | time_outs)
        return self.observe(), angle.cos(), terminated, time_outs, final_obs


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(64, outputs))


class Buffer:
    """A ring of steps of all environments."""

    def __init__(self, size: int, num_envs: int, device: str) -> None:
        shapes = {"obs": 3, "actions": 1, "rewards": 1, "next_obs": 3, "terminated": 1}
        self.data = {
            name: torch.zeros(size, num_envs, width, device=device)
            for name, width in shapes.items()
        }
        self.size, self.count = size, 0

    def add(self, **step: Tensor) -> None:
        for name, value in step.items():
            self.data[name][self.count % self.size] = value.reshape(self.data[name].shape[1:])
        self.count += 1

    def sample(self, batch_size: int) -> dict[str, Tensor]:
        rows, num_envs = min(self.count, self.size), self.data["obs"].shape[1]
        index = torch.randint(rows * num_envs, (batch_size,), device=self.data["obs"].device)
        return {name: values.flatten(0, 1)[index] for name, values in self.data.items()}


def main(steps: int = 300, **settings: float) -> dict[str, float]:
    args = Args(**settings)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    envs, buffer = (
        Pendulums(args.num_envs, device),
        Buffer(args.buffer_size, args.num_envs, device),
    )
    actor = nn.Sequential(mlp(3, 1), nn.Tanh()).to(device)
    critics, targets = (nn.ModuleList([mlp(4, 1), mlp(4, 1)]).to(device) for _ in range(2))
    targets.load_state_dict(critics.state_dict())
    actor_optimizer = torch.optim.AdamW(actor.parameters(), lr=args.learning_rate)
    critic_optimizer = torch.optim.AdamW(critics.parameters(), lr=args.learning_rate)
    # bfloat16 needs no scaler; float16 does, so that the loop has one.
    scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
    autocast = torch.autocast(device, dtype=torch.bfloat16)

    def critic_loss(batch: dict[str, Tensor]) -> Tensor:
        with autocast, torch.no_grad():
            noise = (0.1 * torch.randn_like(batch["actions"])).clamp(-0.3, 0.3)
            actions = (actor(batch["next_obs"]) + noise).clamp(-1, 1)
            inputs = torch.cat([batch["next_obs"], actions], -1)
            value = torch.min(targets[0](inputs), targets[1](inputs))
            # A time-out is not a termination: its value goes on.
            target = batch["rewards"] + args.gamma * (1 - batch["terminated"]) * value
        with autocast:
            inputs = torch.cat([batch["obs"], batch["actions"]], -1)
            return sum(F.mse_loss(critic(inputs), target) for critic in critics)

    def actor_losses(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        with autocast:
            inputs = torch.cat([batch["obs"], actor(batch["obs"])], -1)
            actor_loss = -torch.min(critics[0](inputs), critics[1](inputs)).float().mean()
        # damper: in float32, because actions of consecutive steps differ by less than bfloat16
        # can tell apart
        keep = batch["terminated"] == 0
        return actor_loss, damper.temporal_loss(actor, batch["obs"], batch["next_obs"], mask=keep)

    if args.compile:
        # damper: the losses are compiled; damper.backward stays outside, as optimizer steps do
        critic_loss, actor_losses = torch.compile(critic_loss), torch.compile(actor_losses)

    obs, changes, conflicts = envs.observe(), [], []
    for step in range(steps):
        with torch.no_grad():
            mean = actor(obs)
            actions = (mean + 0.2 * torch.randn_like(mean)).clamp(-1, 1)
        next_obs, rewards, terminated, time_outs, final_obs = envs.step(actions)
        ended = terminated | time_outs
        # damper: the true successor, also where the environment was reset
        true_next_obs = torch.where(ended[:, None], final_obs, next_obs)
        buffer.add(
            obs=obs,
            actions=actions,
            rewards=rewards,
            next_obs=true_next_obs,
            terminated=terminated,
        )
        with torch.no_grad():
            changes.append((actor(true_next_obs) - mean).abs().mean())
        obs = next_obs
        if step < args.learning_starts:
            continue
        for _ in range(args.num_updates):
            batch = buffer.sample(args.batch_size)
            critic_optimizer.zero_grad()
            scaler.scale(critic_loss(batch)).backward()
            scaler.step(critic_optimizer)
            actor_loss, temporal_loss = actor_losses(batch)
            # damper: in place of scaler.scale(actor_loss).backward(); one scale for both
            report = damper.backward(
                scaler.scale(actor_loss),
                scaler.scale(temporal_loss),
                actor.parameters(),
                eta=args.eta,
            )
            scaler.unscale_(actor_optimizer)
            nn.utils.clip_grad_norm_(actor.parameters(), args.max_grad_norm)
            scaler.step(actor_optimizer)
            scaler.update()
            conflicts.append(report.conflict.float())
            with torch.no_grad():
                for target, online in zip(targets.parameters(), critics.parameters()):
                    target.lerp_(online, args.tau)
    return {
        "mean_change": torch.stack(changes[-50:]).mean().item() / 2,
        "conflict": torch.stack(conflicts).mean().item(),
    }


if __name__ == "__main__":
    print(main())
