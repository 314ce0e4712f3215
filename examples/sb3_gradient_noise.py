"""How much of a minibatch's gradient is signal? PPO's own beside the temporal one's, while plain PPO learns.

    python examples/sb3_gradient_noise.py --env Pendulum-v1 --steps 81920

Coherence is the length of the mean gradient over the mean length of the gradients, in one epoch without a step: 1 where
all minibatches agree, 1/√n where n of them are noise alone.
"""

from __future__ import annotations

import argparse

import torch
from sb3_ppo import make_envs, settings
from stable_baselines3.common.vec_env import sync_envs_normalization

from damper.sb3 import PPO


def coherence(gradients: torch.Tensor) -> float:
    return float(gradients.mean(0).norm() / gradients.norm(dim=1).mean())


def measure(model: PPO, probe: PPO, seen: list) -> dict[str, float]:
    """One epoch of the probe, whose learning rate is 0, with the model's policy."""
    seen.clear()
    probe.policy.load_state_dict(model.policy.state_dict())
    sync_envs_normalization(model.get_env(), probe.get_env())
    probe.learn(probe.n_steps * probe.n_envs)
    primary, auxiliary = (torch.stack(gradients).double() for gradients in zip(*seen))
    q = (auxiliary.norm(dim=1) / primary.norm(dim=1)).clamp(max=1.0)
    facts = {"primary": coherence(primary), "temporal": coherence(auxiliary)}
    return facts | {f"w at η = {eta:g}": float((q ** (1 - eta)).mean()) for eta in (0.0, 0.5, 1.0)}


def main(env: str = "Pendulum-v1", steps: int = 81920, points: int = 4, seed: int = 0, backend: str = "gymnasium"):
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def watch(primary, auxiliary):
        """A rule that only looks."""
        seen.append((primary, auxiliary))
        return primary

    ppo = settings(env, steps)
    model = PPO("MlpPolicy", make_envs(env, seed, backend), seed=seed, method="plain", **ppo)
    still = {**ppo, "learning_rate": 0.0, "n_epochs": 1}
    probe = PPO("MlpPolicy", make_envs(env, seed + 100, backend), seed=seed + 100, rule=watch, **still)
    table = {}
    for point in range(points):
        table[point * steps // points] = found = measure(model, probe, seen)
        print(
            f"after {point * steps // points:>7,} steps: " + ", ".join(f"{k} {v:.3f}" for k, v in found.items()),
            flush=True,
        )
        model.learn(steps // points, reset_num_timesteps=False)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--steps", type=int, default=81920)
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=["gymnasium", "envpool"], default="gymnasium")
    main(**vars(parser.parse_args()))
