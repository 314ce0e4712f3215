"""How much of a minibatch's gradient is signal? PPO's own, and the temporal one's, on Pendulum.

    python examples/sb3_gradient_noise.py --steps 81920

Coherence is the length of the mean gradient over the mean length of the gradients, in one epoch
without a step: 1 where all minibatches agree, 1/√n where n of them are noise alone.
"""

from __future__ import annotations

import argparse

import torch
from stable_baselines3.common.env_util import make_vec_env

from damper.sb3 import PPO


def coherence(gradients: torch.Tensor) -> float:
    return float(gradients.mean(0).norm() / gradients.norm(dim=1).mean())


def main(steps: int = 81920, points: int = 4, seed: int = 0):
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def watch(primary, auxiliary):
        """A rule that only looks."""
        seen.append((primary, auxiliary))
        return primary

    ppo = {"gamma": 0.9, "n_steps": min(1024, steps // 64 * 16), "device": "cpu"}
    model, probe = (
        PPO(
            "MlpPolicy",
            make_vec_env("Pendulum-v1", n_envs=4, seed=own),
            seed=own,
            **ppo,
            **settings,
        )
        for own, settings in (
            (seed, {"method": "plain", "learning_rate": 1e-3}),
            (seed + 100, {"rule": watch, "learning_rate": 0.0, "n_epochs": 1}),
        )
    )
    table = {}
    for point in range(points):
        probe.policy.load_state_dict(model.policy.state_dict())
        seen.clear()
        probe.learn(probe.n_steps * probe.n_envs)
        primary, auxiliary = (torch.stack(gradients).double() for gradients in zip(*seen))
        q = (auxiliary.norm(dim=1) / primary.norm(dim=1)).clamp(max=1.0)
        found = {"primary": coherence(primary), "temporal": coherence(auxiliary)}
        found |= {f"w at η = {eta:g}": float((q ** (1 - eta)).mean()) for eta in (0.0, 0.5, 1.0)}
        table[str(point * steps // points)] = found
        told = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        print(f"after {point * steps // points:>7,} steps: {told}", flush=True)
        model.learn(steps // points, reset_num_timesteps=False)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=81920)
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
