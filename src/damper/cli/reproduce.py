"""``damper reproduce``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from damper.cli.options import given
from damper.cli.options.reproduce import Reproduce
from damper.engine.run.files import check_folder
from damper.errors import DamperError
from damper.experiments.paper_experiments import EXPERIMENTS, Request
from damper.experiments.ray_runner import run_on_ray
from damper.experiments.reproduce import Runner, overview, reproduce
from damper.experiments.workers import run_jobs
from damper.terminal import counted, quoted, say, show


def run(options: Reproduce) -> None:
    """List, or train and record."""
    unset = dict.fromkeys(("tf32", "keep_checkpoint", "norm_obs"), False)
    settings = {name: value for name, value in given(options.engine).items() if unset.get(name) is not value}
    settings |= {"units": options.units} if options.units else {}
    runner: Runner = partial(run_jobs, workers=options.workers)
    if options.ray is not None:
        # The machines that train may have a device which this one lacks.
        device = settings.pop("device", "cpu")
        runner = partial(run_on_ray, address=options.ray, device=device, cores=options.ray_cores)
    if options.list:
        settings.pop("device", None)  # what is missing is the same from any machine
    seeds = options.seed_list or options.seeds
    request = Request(
        options.experiments,
        options.tasks,
        options.methods,
        options.backbones,
        seeds,
        options.protocol,
        options.steps,
        options.episodes,
        settings,
    )
    if options.list:
        show_progress(request, options.results)
    elif not options.experiments:
        raise DamperError(f"experiments must name one or more of {', '.join(EXPERIMENTS)}; --list describes them.")
    else:
        check_folder("out", options.out)
        check_folder("results", options.results)
        outcome = reproduce(request, options.results, options.out, options.population, runner=runner)
        say(
            f"{counted(outcome.wanted, 'agent')}: {outcome.there} there before, {outcome.added} added, "
            f"{outcome.left} left"
            + (" (another process is training them)" if outcome.left else "")
            + f"; next: damper report --results {quoted(options.results)}"
        )


def show_progress(request: Request, results: Path) -> None:
    """Print how far each experiment is."""
    rows = []
    for row in overview(request, results):
        time = "unknown yet" if row.seconds is None else duration(row.seconds)
        done = f"{row.done + row.elsewhere} of {row.total}"
        done += f"\n({row.elsewhere} otherwise)" if row.elsewhere else ""
        left = [str(row.total - row.done), str(row.populations), time if row.populations else "–"]
        rows.append([f"{row.name}\n  {row.title}", done, *left])
    header = ["experiment", "agents on record", "left to train", "populations", "time left"]
    show(f"protocol {request.protocol}, results in {quoted(results)}", header, rows)
    say(
        "Otherwise: with other simulators or number formats than these settings ask for, which no table mixes. "
        "Time left: at the speeds on record for the task.",
    )


def duration(seconds: float) -> str:
    """Hours and minutes."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
