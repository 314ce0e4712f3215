"""``python -m paper reproduce``: train what the store lacks of the paper's experiments."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from damper.engine.device.precision import check_tf32
from damper.engine.settings import EXECUTION, find_device
from damper.errors import DamperError
from damper.provenance import digest
from paper.experiments.catalogue import (
    EXPERIMENTS,
    Experiment,
    Request,
    expand_request,
    find_experiment,
)
from paper.experiments.population_plan import Job, pack
from paper.experiments.store import Record, Store
from paper.experiments.timings import read_timings
from paper.runners.in_process import plan, run_here
from paper.runners.workers import AGENT_STEPS_PER_SECOND, fitting_workers, uses_gpu

_SHOWN = ("device", "compile")  # the execution settings that a record's command names
Runner = Callable[[Sequence[tuple[Job, Path]], Store, str, bool], None]


@dataclass(frozen=True)
class Outcome:
    """Numbers of agents: wanted, on record before the call, added by it, and still missing."""

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
    """Train and record only those agents of a request that the store lacks.

    Args:
        request: which experiments, tasks, methods, seeds and settings.
        results: the store's folder.
        out: the folder of the runs; unfinished ones are resumed.
        population: the most agents to train as one batch; no limit by default.
        progress: show a live table.
        runner: runs the jobs; by default one by one in this process.
    """
    for name in request.experiments:
        if not find_experiment(name).trained:
            raise DamperError(
                f"{name} is measured, not trained: python -m paper bench writes its records."
            )
    store, out, request = Store(Path(results)), Path(out), on_device(request)
    agents = expand_request(request)
    missing = [agent for agent in agents if not store.has(agent.identity)]
    for agent in missing:
        check_tf32(agent.settings.device, agent.settings.tf32)
    (runner or run_here)(plan(missing, out, population), store, command(request), progress)
    left = sum(not store.has(agent.identity) for agent in missing)
    return Outcome(len(agents), len(agents) - len(missing), len(missing) - left, left)


def on_device(request: Request) -> Request:
    """Resolve the device "auto": it decides what steps the environments."""
    if request.settings.get("device", "auto") != "auto":
        return request
    return replace(request, settings={**request.settings, "device": find_device()})


def command(request: Request) -> str:
    """The command line of a request, without what differs between machines."""
    parts: list[Any] = ["python", "-m", "paper", "reproduce", *request.experiments]
    for name in ("tasks", "methods", "backbones"):
        parts += [f"--{name}", *getattr(request, name)] if getattr(request, name) else []
    if isinstance(request.seeds, int):
        parts += ["--seeds", request.seeds]
    elif request.seeds is not None:
        parts += ["--seed-list", *request.seeds]
    parts += ["--protocol", request.protocol]
    parts += ["--steps", request.steps] if request.steps is not None else []
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
class ExperimentProgress:
    """The progress of an experiment under a request's protocol and settings.

    Attributes:
        elsewhere: missing agents that are on record with another simulator or number format.
        platforms: the number of such records, by the options that ask for them.
        seconds: the least time of the populations to train, at the speeds on record.
        no_speed: tasks without such a speed on record; ``seconds`` leaves them out.
    """

    name: str
    title: str
    done: int
    total: int
    elsewhere: int = 0
    platforms: Mapping[str, int] = field(default_factory=dict)
    populations: int = 0
    workers: int = 0
    seconds: float = 0.0
    no_speed: tuple[str, ...] = ()


def overview(
    request: Request,
    results: str | Path = "results",
    population: int | None = None,
    workers: int | None = None,
) -> list[ExperimentProgress]:
    """What is done and missing of each experiment (all, if none is named), and its time.

    ``population`` and ``workers`` limit populations as in ``reproduce``.
    """
    records, request = list(Store(results)), on_device(request)
    there = {record.digest for record in records}
    platforms: dict[str, set[str]] = {}
    for record in records:
        alike = platforms.setdefault(_digest_on_any_platform(record.identity), set())
        alike.add(_platform(record.identity))
    rows = []
    for name in request.experiments or tuple(EXPERIMENTS):
        experiment = find_experiment(name)
        if not experiment.trained:
            rows.append(_measured(name, experiment, Path(results)))
            continue
        agents = expand_request(replace(request, experiments=(name,)))
        missing = [agent for agent in agents if agent.digest not in there]
        jobs = pack(missing, population)
        at_once = min(len(jobs), fitting_workers(jobs) if workers is None else workers)
        seconds, no_speed = estimate(jobs, records, at_once)
        digests = [_digest_on_any_platform(agent.identity) for agent in missing]
        elsewhere = [platforms[name] for name in digests if name in platforms]
        counts = (len(agents) - len(missing), len(agents), len(elsewhere))
        kinds = Counter(itertools.chain(*elsewhere))
        row = ExperimentProgress(name, experiment.title, *counts, kinds, len(jobs), at_once)
        rows.append(replace(row, seconds=seconds, no_speed=no_speed))
    return rows


def platform_options(identity: Mapping[str, Any]) -> str:
    """The options that ask for an agent's simulator and number format."""
    return f"--backend {identity['backend']}" + (" --tf32" if identity["numerics"]["tf32"] else "")


def _platform(identity: Mapping[str, Any]) -> str:
    """``platform_options``, and the simulator's versions and the number format."""
    dtype = identity["numerics"]["dtype"]
    others = f", {dtype}" if dtype != "float32" else ""
    versions = " and ".join(f"{name} {version}" for name, version in identity["physics"].items())
    return f"{platform_options(identity)} ({versions} installed{others})"


def _measured(name: str, experiment: Experiment, results: Path) -> ExperimentProgress:
    """The progress of an experiment that ``python -m paper bench`` measures."""
    total = set(itertools.product(experiment.backbones, experiment.variants))
    done = total & {(timing.backbone, timing.method) for timing in read_timings(results)}
    return ExperimentProgress(name, experiment.title, len(done), len(total))


def _digest_on_any_platform(identity: Mapping[str, Any]) -> str:
    """The digest of an identity without simulator and number format."""
    platform = ("backend", "physics", "numerics")
    return digest({name: value for name, value in identity.items() if name not in platform})


def estimate(
    jobs: Sequence[Job], records: Sequence[Record], workers: int = 1
) -> tuple[float, tuple[str, ...]]:
    """Seconds for the jobs on one machine at speeds on record, and the tasks without a speed.

    Never less than the longest job takes, nor, on a GPU, than one H200 needs for all agents' steps.
    """
    seconds, steps, no_speed = [0.0], 0, dict[str, None]()
    for job in jobs:
        speed = _speed(job, records)
        if speed is None:
            no_speed[job.wanted[0].identity["task"]] = None
        else:
            seconds.append(job.settings.steps / speed)
            steps += job.settings.steps * len(job.wanted)
    filled = steps / AGENT_STEPS_PER_SECOND if uses_gpu(jobs) else 0.0
    return max(sum(seconds) / max(1, workers), max(seconds), filled), tuple(no_speed)


def _speed(job: Job, records: Sequence[Record]) -> float | None:
    """Median steps per second of the most similar populations on this kind of device."""
    best: tuple[int, list[float]] = (-1, [])
    wanted, cpu = job.wanted[0].identity, job.settings.device == "cpu"
    for record in records:
        speed, identity = record.run.get("steps_per_second"), record.identity
        same_device = (record.run.get("device", "cpu") == "cpu") == cpu
        if not speed or not same_device or identity["task"] != wanted["task"]:
            continue
        if cpu:  # one agent fills it, so each of five is a fifth as fast
            speed *= record.run["agents"] / len(job.wanted)
        score = sum(identity[name] == wanted[name] for name in ("backbone", "method", "backend"))
        if score > best[0]:
            best = (score, [speed])
        elif score == best[0]:
            best[1].append(speed)
    if not best[1]:
        return None
    most = float("inf") if cpu else AGENT_STEPS_PER_SECOND / len(job.wanted)
    return min(median(best[1]), most)
