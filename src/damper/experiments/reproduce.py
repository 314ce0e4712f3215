"""``damper reproduce``: the paper's experiments, whatever of them is missing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from damper.engine.settings import EXECUTION
from damper.errors import DamperError
from damper.experiments.identity import digest
from damper.experiments.paper_experiments import (
    EXPERIMENTS,
    AgentSpec,
    Experiment,
    Request,
    expand_request,
    find_experiment,
)
from damper.experiments.population_plan import Job, pack
from damper.experiments.runner import plan, run_here
from damper.experiments.store import Record, Store
from damper.experiments.timings import read_timings

_SHOWN = ("device", "compile")  # the execution settings that a record's command names
Runner = Callable[[Sequence[tuple[Job, Path]], Store, str, bool], None]


@dataclass(frozen=True)
class Outcome:
    """What a call did: agents wanted, those that were there before, those trained or recorded now, those left."""

    wanted: int
    there: int
    added: int
    left: int


def reproduce(
    request: Request,
    results: str | Path = "results",
    out: str | Path = "runs/reproduce",
    population: int | None = None,
    progress: bool = True,
    runner: Runner | None = None,
) -> Outcome:
    """Train and record what the store lacks of a request, and nothing else.

    Args:
        request: which experiments, tasks, methods, seeds and settings.
        results: the store's folder.
        out: where runs live while they are trained; begun ones are gone on with.
        population: the most agents to train as one batch; by default as many as there are.
        progress: show a live table.
        runner: runs the jobs, such as ``run_jobs`` in several processes; by default one after another here.
    """
    for name in request.experiments:
        if not find_experiment(name).trained:
            raise DamperError(f"{name} is measured, not trained: damper bench writes its records.")
    store, out = Store(Path(results)), Path(out)
    agents = expand_request(request)
    missing = [agent for agent in agents if not store.has(agent.identity)]
    (runner or run_here)(plan(missing, out, population), store, command(request), progress)
    left = sum(not store.has(agent.identity) for agent in missing)
    return Outcome(len(agents), len(agents) - len(missing), len(missing) - left, left)


def command(request: Request) -> str:
    """The command line of a request, without the places that differ between machines."""
    parts: list[Any] = ["damper", "reproduce", *request.experiments]
    for name in ("tasks", "methods", "backbones"):
        parts += [f"--{name}", *getattr(request, name)] if getattr(request, name) else []
    if request.seeds is not None:
        parts += ["--seeds", request.seeds] if isinstance(request.seeds, int) else ["--seed-list", *request.seeds]
    parts += ["--protocol", request.protocol]
    parts += ["--steps", request.steps] if request.steps else []
    parts += ["--episodes", request.episodes] if request.episodes != 10 else []
    for name, value in sorted(request.settings.items()):
        if name in EXECUTION and name not in _SHOWN:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            parts.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            parts += [f"--{flag}", *(value if isinstance(value, list | tuple) else (value,))]
    return shlex.join(str(part) for part in parts)


@dataclass(frozen=True)
class Progress:
    """How far an experiment is under a protocol: agents there and wanted, populations to train, seconds if known.

    ``elsewhere`` counts missing agents that are there with other simulators or numerics.
    """

    name: str
    title: str
    protocol: str
    done: int
    total: int
    elsewhere: int
    populations: int
    seconds: float | None


def overview(request: Request, results: str | Path = "results") -> list[Progress]:
    """For each experiment of a request (all, if it names none): what is done, what is missing, how long that takes."""
    store = Store(Path(results))
    records = list(store)
    known = {_digest_on_any_platform(record.identity) for record in records}
    rows = []
    for name in request.experiments or tuple(EXPERIMENTS):
        experiment = find_experiment(name)
        if not experiment.trained:
            rows.append(_measured(name, experiment, request.protocol, Path(results)))
            continue
        agents = expand_request(replace(request, experiments=(name,)))
        missing = [agent for agent in agents if not store.has(agent.identity)]
        jobs = pack(missing)
        rows.append(
            Progress(
                name,
                experiment.title,
                request.protocol,
                done=len(agents) - len(missing),
                total=len(agents),
                elsewhere=sum(_digest_on_any_platform(agent.identity) in known for agent in missing),
                populations=len(jobs),
                seconds=estimate(jobs, records),
            )
        )
    return rows


def _measured(name: str, experiment: Experiment, protocol: str, results: Path) -> Progress:
    """How far an experiment is that ``damper bench`` fills."""
    total = {(backbone, method) for backbone in experiment.backbones for method in experiment.variants}
    done = total & {(timing.backbone, timing.method) for timing in read_timings(results)}
    return Progress(name, experiment.title, protocol, len(done), len(total), 0, 0, None)


def _digest_on_any_platform(identity: Mapping[str, Any]) -> str:
    """Digest of an identity without simulator and numerics."""
    return digest({name: value for name, value in identity.items() if name not in ("envs", "physics", "numerics")})


def estimate(jobs: Sequence[Job], records: Sequence[Record]) -> float | None:
    """Seconds for the jobs one after another at the speeds on record; None while nothing like them was run."""
    total = 0.0
    for job in jobs:
        speed = _speed(job.wanted[0], records)
        if speed is None:
            return None
        total += job.settings.steps / speed
    return total


def _speed(agent: AgentSpec, records: Sequence[Record]) -> float | None:
    """Median steps per second of the most similar populations: same task, then backbone, then method."""
    best: tuple[int, list[float]] = (-1, [])
    for record in records:
        speed, identity = record.run.get("steps_per_second"), record.identity
        if not speed or identity["task"] != agent.identity["task"]:
            continue
        score = sum(identity[name] == agent.identity[name] for name in ("backbone", "method", "envs"))
        if score > best[0]:
            best = (score, [speed])
        elif score == best[0]:
            best[1].append(speed)
    return median(best[1]) if best[1] else None
