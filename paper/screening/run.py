"""Train a population or PPO runs of the screening; each writes one JSON of rows, one per agent.

python -m paper.screening train Hopper td3 --steps 100000 --out FOLDER
python -m paper.screening train LunarLander td3 --steps 100000 --scaled --out FOLDER
python -m paper.screening ppo Hopper-v5 --steps 200000 --jobs 8 --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import damper
from damper.engine.data.replay import Replay
from damper.engine.run.folder import Run
from damper.engine.settings import population_settings, resolve
from damper.engine.train import run_settings
from damper.engine.update.population import Population
from damper.files import write_json
from damper.losses.temporal import temporal
from damper.methods import METHODS, Method
from damper.rules import RULES
from paper.screening.rule import screen
from paper.screening.table import collect, read, tables
from paper.screening.variants import FINAL, PPO, SCALED, SECOND, THIRD, VARIANTS, complete

NUMBERS = (
    "weight",
    "g·m",
    "g·previous",
    "g·g",
    "cosine",
    "average_cosine",
    "norm_ratio",
    "n_T",
    "length",
)
MEASURES = ("return", "length", "sm", "mean_change")


def register() -> None:
    """Make ``screen`` a method that the engine finds by name."""
    RULES["screen"] = screen
    METHODS["screen"] = Method("screen", actor=temporal, rule="screen")


def scale_rewards(scales: list[float], device: str) -> None:
    """Multiply each agent's sampled rewards by its scale."""
    if set(scales) == {1.0}:
        return
    factor = torch.tensor(scales, device=device).unsqueeze(1)
    sample = Replay.sample

    def scaled(self: Replay, *arguments: Any, **keywords: Any) -> Any:
        batch = sample(self, *arguments, **keywords)
        return batch._replace(reward=batch.reward * factor)

    Replay.sample = scaled  # type: ignore[method-assign]


def measure(evaluation: Any, agents: int) -> list[dict[str, Any]]:
    """Episode means and whether the action is constant, one row per agent."""
    records, constant = evaluation.records(), set(evaluation.constant_agents())
    rows = []
    for agent in range(agents):
        episodes = [record for record in records if record["agent"] == agent]
        means = {name: float(np.mean([e[name] for e in episodes])) for name in MEASURES}
        rows.append({**means, "constant": agent in constant})
    return rows


def train(args: argparse.Namespace) -> None:
    """Train one population of variants × seeds (× reward scales), evaluate it, write its rows."""
    register()
    names = [
        name
        for name in (
            SCALED
            if args.scaled
            else SECOND
            if args.second
            else THIRD
            if args.third
            else FINAL
            if args.final
            else VARIANTS
        )
        if not args.only or name in args.only
    ]
    scales = (0.01, 100.0) if args.scaled else (1.0,)
    labels = [(name, scale, seed) for name in names for scale in scales for seed in args.seeds]
    shared = {"protocol": args.protocol, "device": args.device, "backend": args.backend}
    shared |= {
        "compile": bool(args.compile),
        "tf32": args.device == "cuda",
        "log_every": args.log_every,
    }
    shared |= {"net_arch": tuple(args.net_arch)} if args.net_arch else {}
    shared |= {"learning_starts": args.learning_starts} if args.learning_starts else {}
    agents = [
        resolve(
            args.task,
            args.backbone,
            "screen",
            (seed,),
            args.steps,
            **{**shared, **complete(name), "reward_scale": scale},
        )
        for name, scale, seed in labels
    ]
    settings = population_settings(agents)
    kinds = ("scaled", "second", "third", "final")
    key = "-".join([args.task, args.backbone, *(kind for kind in kinds if getattr(args, kind))])
    scale_rewards([scale for _, scale, _ in labels], args.device)
    started = time.time()
    watch = Watch()
    run = run_settings(settings, args.out / "runs" / key, args.progress, callbacks=(watch,))
    rows = measure(
        damper.evaluate(run, settings.env, args.episodes, backend=args.backend), len(labels)
    )
    curves = curve(run)
    memory = watch.table()
    out = [
        {
            "task": args.task,
            "backbone": args.backbone,
            "variant": name,
            "reward_scale": scale,
            "seed": seed,
            "steps": args.steps,
            **row,
            "memory": {k: v[i] for k, v in memory.items()},
            "curve": {k: v[i] for k, v in curves.items()},
        }
        for i, ((name, scale, seed), row) in enumerate(zip(labels, rows, strict=True))
    ]
    facts = {
        "seconds": time.time() - started,
        "settings": run.manifest["settings"],
        "versions": run.manifest["versions"],
        "hardware": run.manifest.get("hardware"),
    }
    write_json(args.out / f"{key}.json", {**facts, "rows": out})
    print(key, f"{time.time() - started:.0f} s", flush=True)


def curve(run: Run) -> dict[str, list[list[Any]]]:
    """The log's diagnostics, thinned to twenty lines, by agent."""
    lines = run.metrics()
    lines = lines[:: max(1, len(lines) // 20)]
    names = [
        n
        for n in ("return", "mean_change", "cosine", "norm_ratio", "weight", "smoothness", "change")
        if any(n in line for line in lines)
    ]
    agents = len(run.agents)
    table = {
        n: [[(line.get(n) or [None] * agents)[i] for line in lines] for i in range(agents)]
        for n in names
    }
    return {**table, "step": [[line["step"] for line in lines]] * agents}


class Watch:
    """A callback that keeps what the rule's memory holds, at every line of the log."""

    def __init__(self) -> None:
        """Find the population when it is made."""
        self.numbers: list[Tensor] = []
        self.population: Any = None
        engine: Any = Population
        made = engine.__init__

        def keep(population: Population, **keywords: Any) -> None:
            made(population, **keywords)
            # The engine makes a smaller one to check a custom loss.
            if self.population is None or population.n_agents > self.population.n_agents:
                self.population = population

        engine.__init__ = keep

    def __call__(self, training: damper.Training) -> None:
        """Read the averages."""
        self.numbers.append(self.population.state()["memory.2"].detach().cpu().clone())

    def table(self) -> dict[str, list[list[float]]]:
        """Up to 25 points per agent of every average and of ρ, by m and by the previous gradient."""
        if not self.numbers:
            return {}  # the run had been finished before
        thinned = self.numbers[:: max(1, len(self.numbers) // 25)]
        numbers = torch.stack([*thinned, self.numbers[-1]], 1)  # [P, points, 9]
        table = {name: numbers[..., i] for i, name in enumerate(NUMBERS)}
        square = table["g·g"].clamp(min=1e-38)
        table["rho"] = (table["g·m"] / square).clamp(0, 1).sqrt()
        table["rho_previous"] = (table["g·previous"] / square).clamp(0, 1).sqrt()
        return {name: values.tolist() for name, values in table.items()}


def ppo_run(
    env: str, steps: int, name: str, seed: int, batch_size: int, backend: str
) -> dict[str, Any]:
    """One PPO run with SB3's settings (on Pendulum its zoo's), evaluated."""
    torch.set_num_threads(1)
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

    from damper import sb3

    pendulum = env == "Pendulum-v1"
    own: dict[str, Any] = {"n_steps": 512}
    if pendulum:
        own = {"learning_rate": 1e-3, "gamma": 0.9, "n_steps": 1024}
    envs = (
        VecMonitor(sb3.EnvPoolVecEnv(env, 4, threads=1))
        if backend == "envpool"
        else make_vec_env(env, 4, seed=seed)
    )
    envs = envs if pendulum else VecNormalize(envs)
    settings = {k: v for k, v in complete(name).items() if k != "reward_scale"}
    chosen: dict[str, Any] = {"rule": screen, **settings}
    if name == "plain":
        chosen = {"method": "plain"}
    started = time.time()
    model = sb3.PPO(
        "MlpPolicy", envs, seed=seed, device="cpu", batch_size=batch_size, **own, **chosen
    )
    model.learn(steps)
    (row,) = measure(
        damper.evaluate(model, env=env, episodes=10, backend=backend, env_threads=1), 1
    )
    extra = {}
    if name != "plain":
        numbers = model.method_state.rule_state.numbers
        extra = {f"final_{n}": float(numbers[i]) for i, n in enumerate(NUMBERS)}
        extra["rho"] = float((numbers[1] / numbers[3].clamp(min=1e-38)).clamp(0, 1).sqrt())
        extra["rho_previous"] = float((numbers[2] / numbers[3].clamp(min=1e-38)).clamp(0, 1).sqrt())
    return {
        "task": env,
        "backbone": f"ppo-{batch_size}",
        "variant": name,
        "reward_scale": 1.0,
        "seed": seed,
        "steps": steps,
        **row,
        **extra,
        "seconds": time.time() - started,
    }


def ppo(args: argparse.Namespace) -> None:
    """All variants and seeds, a process each; every run has its line at once."""
    names = args.only or PPO
    labels = [(seed, name) for seed in args.seeds for name in names]
    path = args.out / f"{args.env}-ppo-{args.batch_size}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(
        args.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        waiting = [
            pool.submit(ppo_run, args.env, args.steps, name, seed, args.batch_size, args.backend)
            for seed, name in labels
        ]
        for done in as_completed(waiting):
            row = done.result()
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(
                row["task"],
                row["variant"],
                row["seed"],
                f"{row['return']:.1f}",
                f"{row['mean_change']:.4f}",
                f"{row['seconds']:.0f} s",
                flush=True,
            )


def table(args: argparse.Namespace) -> None:
    """Print the tables of the rows on record; with folders, first put their rows on record."""
    if args.folders:
        print(f"{collect(args.folders, args.results)} rows in {args.results}")
    print(tables(read(args.results)))


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m paper.screening")
    commands = parser.add_subparsers(required=True)
    for function in (train, ppo):
        command = commands.add_parser(function.__name__)
        command.set_defaults(function=function)
        command.add_argument("task" if function is train else "env")
        if function is train:
            command.add_argument("backbone")
            command.add_argument("--scaled", action="store_true")
            command.add_argument("--second", action="store_true")
            command.add_argument("--third", action="store_true")
            command.add_argument("--final", action="store_true")
            command.add_argument("--protocol", default="pave")
            command.add_argument("--device", default="cuda")
            command.add_argument("--compile", type=int, default=1)
            command.add_argument("--log-every", type=int, default=1000)
            command.add_argument("--learning-starts", type=int)
            command.add_argument("--net-arch", type=int, nargs="+")
            command.add_argument("--episodes", type=int, default=10)
            command.add_argument("--progress", action="store_true")
        else:
            command.add_argument("--batch-size", type=int, default=64)
            command.add_argument("--jobs", type=int, default=1)
        command.add_argument("--backend", default="envpool")
        command.add_argument("--steps", type=int, required=True)
        command.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
        command.add_argument("--only", nargs="+")
        command.add_argument("--out", type=Path, required=True)
    command = commands.add_parser("table")
    command.set_defaults(function=table)
    command.add_argument("folders", type=Path, nargs="*")
    command.add_argument("--results", type=Path, default=Path("results/screening.jsonl"))
    args = parser.parse_args()
    args.function(args)
