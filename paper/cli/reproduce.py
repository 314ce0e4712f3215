"""``python -m paper reproduce``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from damper.cli.options import chosen_seeds, given
from damper.errors import DamperError
from damper.files import check_folder
from damper.terminal import counted, duration, quoted, say, show
from paper.cli.options.reproduce import Reproduce
from paper.experiments.catalogue import EXPERIMENTS, Request, expand_request, find_experiment
from paper.experiments.reproduce import (
    ExperimentProgress,
    Runner,
    on_device,
    overview,
    platform_options,
    reproduce,
)
from paper.runners.on_ray import cluster_device, run_on_ray
from paper.runners.workers import AGENT_STEPS_PER_SECOND, run_jobs

HEADER = ["experiment", "on record", "these options", "left", "time left", "populations", "what"]


def run(options: Reproduce) -> None:
    """List the experiments' progress, or train and record."""
    if options.workers is not None and options.workers < 1:
        raise DamperError(
            f"workers must be at least 1, but {options.workers} was given: leave it out for the "
            "default."
        )
    settings = _settings(options)
    runner: Runner = partial(run_jobs, workers=options.workers)
    if options.ray is not None:
        runner = partial(run_on_ray, address=options.ray, cores=options.ray_cores)
        if settings.get("device", "auto") == "auto":
            settings["device"] = cluster_device(options.ray)
    request = on_device(
        Request(
            options.experiments,
            options.tasks,
            options.methods,
            options.backbones,
            chosen_seeds(options.seeds, options.seed_list, Reproduce.seeds),
            options.protocol,
            options.steps,
            options.episodes,
            settings,
            trained_here=not options.list and options.ray is None,
        )
    )
    if options.list:
        show_progress(request, options)
        return
    if not options.experiments:
        raise DamperError(
            f"experiments must name one or more of {', '.join(EXPERIMENTS)}; --list describes them."
        )
    check_folder("out", options.out)
    check_folder("results", options.results)
    say(f"Training on {chosen(request)}.")
    done = reproduce(request, options.results, options.out, options.population, runner=runner)
    others = " (another process is training them)" if done.left else ""
    say(
        f"{counted(done.wanted, 'agent')}: {done.there} already there, {done.added} added, "
        f"{done.left} left{others}; "
        f"next: python -m paper report --results {quoted(options.results)}"
    )


def _settings(options: Reproduce) -> dict[str, Any]:
    """The settings that were given; a flag that is off says nothing."""
    flags = ("tf32", "keep_checkpoint", "norm_obs")
    settings = given(options.engine)
    settings = {n: v for n, v in settings.items() if n not in flags or v is not False}
    return {**settings, "units": options.units} if options.units else settings


def chosen(request: Request) -> str:
    """The device and the simulator's options, in words."""
    names = request.experiments or EXPERIMENTS
    trained = tuple(name for name in names if find_experiment(name).trained)
    agents = expand_request(replace(request, experiments=trained, seeds=1))
    options = dict.fromkeys(platform_options(agent.identity) for agent in agents)
    device = str(request.settings["device"])
    return f"{device} with {' or '.join(options)}" if agents else device


def show_progress(request: Request, options: Reproduce) -> None:
    """Print the progress of each experiment."""
    results = options.results
    progress = overview(request, results, options.population, options.workers)
    rows = []
    for row in progress:
        counts = [f"{row.done + row.elsewhere} of {row.total}", row.done, row.total - row.done]
        time = [time_left(row), str(row.populations)]
        rows.append([row.name, *map(str, counts), *time, row.title])
    title = f"protocol {request.protocol} on {chosen(request)}, results in {quoted(results)}"
    show(title, HEADER, rows)
    if not results.is_dir():
        say(
            f"{quoted(results)} does not exist, so nothing is on record: name the folder of "
            "records with --results."
        )
    platforms = sum((Counter(row.platforms) for row in progress), Counter[str]())
    if platforms:
        say(
            "Some records were made with another simulator, another version of it or another "
            "number format than these options and this installation have, and no table mixes them. "
            f"They count with {' or '.join(name for name, _ in platforms.most_common())}."
        )
    _explain_time(progress, str(request.settings["device"]))


def _explain_time(progress: Sequence[ExperimentProgress], device: str) -> None:
    """Say what the estimated times rest on."""
    if no_speed := dict.fromkeys(task for row in progress for task in row.no_speed):
        say(f"No speed is on record on {device} for {', '.join(no_speed)}.")
    if any(row.seconds for row in progress):
        at_once = max(row.workers for row in progress)
        most = f", no more than {AGENT_STEPS_PER_SECOND:,} agent steps per second in total, as on "
        limit = "" if device == "cpu" else most + "one H200"
        say(
            f"Time left, on one machine: at the speeds on record for the task on {device}, with "
            f"--workers {at_once} ({counted(at_once, 'population')} at once{limit})."
        )


def time_left(row: ExperimentProgress) -> str:
    """The estimated time in words, as far as it is known."""
    if not row.populations:
        return "–"
    if not row.seconds:
        return "unknown yet"
    return f"≥ {duration(row.seconds)}" if row.no_speed else duration(row.seconds)
