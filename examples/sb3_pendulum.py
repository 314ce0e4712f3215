"""Stable-Baselines3 on Pendulum-v1, plain and with DAMPER: the import and one argument change."""

from __future__ import annotations

import numpy as np
from stable_baselines3.common.evaluation import evaluate_policy

import damper
from damper.sb3 import TD3  # was: from stable_baselines3 import TD3


def main(steps: int = 10_000, seed: int = 0) -> dict[str, dict[str, float]]:
    results = {}
    for method in ("plain", "damper"):
        settings = {
            "learning_rate": 1e-3,
            "gamma": 0.98,
            "policy_kwargs": {"net_arch": [64, 64]},
            "seed": seed,
        }
        model = TD3("MlpPolicy", "Pendulum-v1", method=method, **settings)
        model.learn(steps)
        returns, _ = evaluate_policy(
            model, model.get_env(), n_eval_episodes=5, return_episode_rewards=True
        )
        evaluation = damper.evaluate(damper.sb3.from_sb3(model), episodes=5)
        results[method] = {
            "return": float(np.mean(returns)),
            "mean_change": evaluation.summary()["all"]["mean_change"]["mean"],
        }
        print(method, results[method])
    return results


if __name__ == "__main__":
    main()
