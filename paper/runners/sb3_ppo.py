"""PPO plain, with DAMPER at three η, and with CAPS.

A record per setting and seed, and a table over the seeds.

    python -m paper.runners.sb3_ppo --env Pendulum-v1 --steps 100000 --out records/ppo
    python -m paper.runners.sb3_ppo --env Hopper-v5 --steps 1000000 --backend envpool --jobs 16
    python -m paper.runners.sb3_ppo --env Pendulum-v1 --steps 200000 --batch-size 1024

Runs that have their record are not trained again, so an interrupted call goes on where it was. All
on the CPU: networks this small are no faster on a GPU, and with --jobs every run has a process and
a core of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

import damper
from damper.files import write_json
from damper.provenance import code_version, hardware
from damper.sb3 import PPO, EnvPoolVecEnv
from paper.experiments.records import DIAGNOSTIC_CURVES
from paper.statistics.estimates import summarise

METHODS: dict[str, dict[str, Any]] = {
    "plain": {"method": "plain"},
    "DAMPER 0": {"eta": 0.0},
    "DAMPER 0.5": {"eta": 0.5},
    "DAMPER 1": {"eta": 1.0},
    "CAPS": {"method": "caps"},
}
MEASURES = {"return": "return", "sm": "sm", "mean_change": "mean |Δa|", "length": "length"}
N_ENVS = 4
POINTS = 25  # of the learning curve


def settings(env: str, steps: int, batch_size: int | None = None) -> dict[str, Any]:
    """SB3's defaults (2,048 steps per rollout), on Pendulum those of its zoo without gSDE."""
    changed: dict[str, Any] = {"n_steps": 512}
    if env == "Pendulum-v1":
        changed = {"learning_rate": 1e-3, "gamma": 0.9, "n_steps": 1024}
    changed |= {"batch_size": batch_size} if batch_size else {}
    return {**changed, "n_steps": min(changed["n_steps"], steps // 64 * 16), "device": "cpu"}


def make_envs(env: str, seed: int, backend: str) -> VecEnv:
    """Four environments; observations and rewards are normalised but on Pendulum."""
    envs: VecEnv
    if backend == "envpool":
        envs = VecMonitor(EnvPoolVecEnv(env, N_ENVS, threads=1))
    else:
        envs = make_vec_env(env, n_envs=N_ENVS, seed=seed)
    return envs if env == "Pendulum-v1" else VecNormalize(envs)


class Curve(KVWriter):
    """What SB3 logs, kept."""

    names = ("return", "std", *DIAGNOSTIC_CURVES, "auxiliary_loss", "approx_kl")

    def __init__(self) -> None:
        self.rows: dict[str, list[float | None]] = {}

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        """Append a row."""
        values = {name.split("/")[1]: value for name, value in key_values.items()}
        values["return"] = values.get("ep_rew_mean")
        self.rows.setdefault("steps", []).append(step)
        for name in self.names:
            value = values.get(name)
            self.rows.setdefault(name, []).append(None if value is None else float(value))

    def close(self) -> None:
        """Nothing is open."""


def train(
    env: str, steps: int, seed: int, label: str, backend: str, batch_size: int | None
) -> dict[str, Any]:
    """Train and evaluate one agent; its record."""
    torch.set_num_threads(1)
    started, ppo = time.perf_counter(), settings(env, steps, batch_size)
    envs = make_envs(env, seed, backend)
    model = PPO("MlpPolicy", envs, seed=seed, **ppo, **METHODS[label])
    curve = Curve()
    model.set_logger(Logger(None, [curve]))
    model.learn(steps, log_interval=max(1, steps // (POINTS * N_ENVS * ppo["n_steps"])))
    evaluation = damper.evaluate(model, env=env, backend=backend, env_threads=1)
    envs.close()
    rows = evaluation.records()
    names = set(rows[0]) - {"agent", "seed", "training_seed", "terminated"}
    return {
        "env": env,
        "label": label,
        "seed": seed,
        "steps": steps,
        "backend": backend,
        "n_envs": N_ENVS,
        "vec_normalize": isinstance(envs, VecNormalize),
        "ppo": ppo,
        "method": model._method.name,
        "settings": dict(model.method_settings),
        "versions": evaluation.versions,
        **code_version(),
        "hardware": hardware("cpu"),
        "seconds": time.perf_counter() - started,
        "evaluation_seeds": [row["seed"] for row in rows],
        "measures": {name: [row[name] for row in rows] for name in sorted(names)},
        "curve": curve.rows,
    }


def finish(path: Path, *run: Any) -> dict[str, Any]:
    """Train one, keep its record, and say so."""
    record = train(*run)
    write_json(path, record)
    measures = record["measures"]
    means = [f"{title} {mean(measures[name]):.4g}" for name, title in MEASURES.items()]
    agent = f"{record['env']} {record['label']} seed {record['seed']}"
    print(f"{agent}: {', '.join(means)} ({record['seconds']:.0f} s)", flush=True)
    return record


def main(options: argparse.Namespace) -> None:
    """Train what has no record yet, and print a table."""
    env, steps, batch_size = options.env, options.steps, options.batch_size
    first = f"{env}-batch-{batch_size}" if batch_size else env
    records, left = {}, {}
    # Seeds first, so that what an interrupted call leaves can be compared.
    for seed, label in product(options.seeds, options.methods):
        path = options.out / f"{first}-{label.replace(' ', '-')}-{steps}-{seed}.json"
        if path.is_file():
            records[label, seed] = json.loads(path.read_text())
        else:
            left[label, seed] = (path, env, steps, seed, label, options.backend, batch_size)
    if options.jobs == 1:
        records |= {key: finish(*run) for key, run in left.items()}
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, spawn, max_tasks_per_child=1) as pool:
            waiting = {pool.submit(finish, *run): key for key, run in left.items()}
            records |= {waiting[done]: done.result() for done in as_completed(waiting)}
    for label, (name, title) in product(options.methods, MEASURES.items()):
        cell = summarise([records[label, seed]["measures"][name] for seed in options.seeds])
        bounds = " [{:.3g}, {:.3g}]".format(*cell.interval) if cell.interval else ""
        print(f"{label:>10}  {title:>9} {cell.mean:10.4g}{bounds}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("results/spool/ppo"))
    parser.add_argument("--backend", choices=["gymnasium", "envpool"], default="gymnasium")
    parser.add_argument("--batch-size", type=int, help="minibatches of another size than SB3's")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each on one core")
    main(parser.parse_args())
