"""PPO plain, with DAMPER at three η, and with CAPS: a record per setting and seed, and a table over the seeds.

    python examples/sb3_ppo.py --env Pendulum-v1 --steps 100000 --seeds 0 1 2 3 4 --out records/ppo

Runs that have their record are not trained again, so an interrupted call goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import damper
from damper.engine.run.files import write_json
from damper.report.statistics import summarise
from damper.sb3 import PPO

METHODS = {
    "plain": {"method": "plain"},
    "DAMPER 0": {"eta": 0.0},
    "DAMPER 0.5": {"eta": 0.5},
    "DAMPER 1": {"eta": 1.0},
    "CAPS": {"method": "caps"},
}
MEASURES = {"return": "return", "smoothness": "sm", "mean_change": "mean|Δa|", "length": "length"}


def settings(env: str, steps: int) -> dict:
    rollout = {"n_steps": 64 * max(1, min(16, steps // 1000)), "batch_size": 64, "device": "cpu"}
    return {"learning_rate": 1e-3, "gamma": 0.9, **rollout} if env == "Pendulum-v1" else rollout


def train(env: str, steps: int, seed: int, method: dict, episodes: int) -> dict:
    envs = make_vec_env(env, n_envs=4, seed=seed)
    if env != "Pendulum-v1":
        envs = VecNormalize(envs)
    model = PPO("MlpPolicy", envs, seed=seed, **settings(env, steps), **method).learn(steps)
    evaluation = damper.evaluate(model, env=env, episodes=episodes)
    measured = {name: spread["mean"] for name, spread in evaluation.summary()["all"].items()}
    facts = {"env": env, "steps": steps, "seed": seed, "method": model._method.name, "normalised": env != "Pendulum-v1"}
    own = {"ppo": settings(env, steps), "settings": dict(model.method_settings), "versions": evaluation.versions}
    return {**facts, **own, "episodes": episodes, "measures": measured}


def main(env: str = "Pendulum-v1", steps: int = 100_000, seeds=(0,), out: Path | None = None, episodes: int = 10):
    found = {}
    for label, method in METHODS.items():
        rows = []
        for seed in seeds:
            path = out and out / env / f"{label.replace(' ', '-')}-{steps}-{seed}.json"
            if path and path.is_file():
                rows.append(json.loads(path.read_text()))
                continue
            rows.append(train(env, steps, seed, method, episodes))
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, rows[-1])
        found[label] = {}
        for name, title in MEASURES.items():
            cell = summarise([[row["measures"][name]] for row in rows])
            found[label][title] = cell.mean
            bounds = f" [{cell.interval.low:.3g}, {cell.interval.high:.3g}]" if cell.interval else ""
            print(f"{label:>10}  {title:>9} {cell.mean:10.4g}{bounds}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("records/ppo"))
    main(**vars(parser.parse_args()))
