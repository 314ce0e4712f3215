"""``python -m paper reproduce``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

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


def run(options: Reproduce) -> None:
    """List the experiments' progress, or train and record."""
    if options.workers is not None and options.workers < 1:
        raise DamperError(
            f"workers must be at least 1, but {options.workers} was given: leave it out for the "
            "default."
        )
    unset = dict.fromkeys(("tf32", "keep_checkpoint", "norm_obs"), False)
    settings = {
        name: value for name, value in given(options.engine).items() if unset.get(name) is not value
    }
    settings |= {"units": options.units} if options.units else {}
    runner: Runner = partial(run_jobs, workers=options.workers)
    if options.ray is not None:
        runner = partial(run_on_ray, address=options.ray, cores=options.ray_cores)
        if settings.get("device", "auto") == "auto":
            settings["device"] = cluster_device(options.ray)
    request = Request(
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
    request = on_device(request)
    if options.list:
        show_progress(request, options.results, options.population, options.workers)
    elif not options.experiments:
        raise DamperError(
            f"experiments must name one or more of {', '.join(EXPERIMENTS)}; --list describes them."
        )
    else:
        check_folder("out", options.out)
        check_folder("results", options.results)
        say(f"Training on {chosen(request)}.")
        outcome = reproduce(
            request, options.results, options.out, options.population, runner=runner
        )
        say(
            f"{counted(outcome.wanted, 'agent')}: {outcome.there} already there, {outcome.added} "
            f"added, {outcome.left} left"
            + (" (another process is training them)" if outcome.left else "")
            + f"; next: python -m paper report --results {quoted(options.results)}"
        )


def chosen(request: Request) -> str:
    """The device and the simulator's options, in words."""
    trained = tuple(
        name for name in request.experiments or EXPERIMENTS if find_experiment(name).trained
    )
    agents = expand_request(replace(request, experiments=trained, seeds=1))
    options = dict.fromkeys(platform_options(agent.identity) for agent in agents)
    return (
        f"{request.settings['device']} with {' or '.join(options)}"
        if agents
        else request.settings["device"]
    )


def show_progress(
    request: Request, results: Path, population: int | None, workers: int | None
) -> None:
    """Print the progress of each experiment."""
    progress = overview(request, results, population, workers)
    rows = []
    for row in progress:
        on_record, left = f"{row.done + row.elsewhere} of {row.total}", str(row.total - row.done)
        rows.append(
            [
                row.name,
                on_record,
                str(row.done),
                left,
                time_left(row),
                str(row.populations),
                row.title,
            ]
        )
    header = [
        "experiment",
        "on record",
        "these options",
        "left",
        "time left",
        "populations",
        "what",
    ]
    show(
        f"protocol {request.protocol} on {chosen(request)}, results in {quoted(results)}",
        header,
        rows,
    )
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
    device, at_once = request.settings["device"], max(row.workers for row in progress)
    if no_speed := dict.fromkeys(task for row in progress for task in row.no_speed):
        say(f"No speed is on record on {device} for {', '.join(no_speed)}.")
    if any(row.seconds for row in progress):
        rate = f"{AGENT_STEPS_PER_SECOND:,}"
        most = (
            f", no more than {rate} agent steps per second in total, as on one H200"
            if device != "cpu"
            else ""
        )
        say(
            f"Time left, on one machine: at the speeds on record for the task on {device}, with "
            f"--workers {at_once} ({counted(at_once, 'population')} at once{most})."
        )


def time_left(row: ExperimentProgress) -> str:
    """The estimated time in words, as far as it is known."""
    if not row.populations:
        return "–"
    if not row.seconds:
        return "unknown yet"
    return f"≥ {duration(row.seconds)}" if row.no_speed else duration(row.seconds)
