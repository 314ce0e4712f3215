"""``damper reproduce``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from damper.cli.options import EngineOptions, given
from damper.errors import DamperError
from damper.experiments.grids import EXPERIMENTS, Request
from damper.experiments.ray_runner import run_on_ray
from damper.experiments.reproduce import Runner, overview, reproduce
from damper.experiments.workers import run_in_workers
from damper.report.tables import terminal_table


@dataclass
class Reproduce:
    """Train what is missing of the paper's tables and figures, evaluate it on the fixed seeds, keep the records.

    The same command goes on with what was killed, fills what was deleted, and changes nothing else.
    """

    experiments: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which, by the names that --list shows."""
    list: bool = False
    """Show the experiments with what is done, what is missing and how long that takes."""
    tasks: tuple[str, ...] = ()
    """Only these tasks (or other environments)."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    backbones: tuple[Literal["td3", "sac"], ...] = ()
    """Only these backbones."""
    seeds: int | None = None
    """How many of the protocol's seeds; the experiment's own number by default."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    protocol: Literal["pave", "damper"] = "pave"
    """Published settings."""
    steps: int | None = None
    """Another budget than the paper's; such records are kept apart."""
    episodes: int = 10
    """Evaluation episodes per agent, on the protocol's fixed seeds."""
    results: Path = Path("results")
    """The store of records."""
    out: Path = Path("runs/reproduce")
    """Where runs live."""
    population: int | None = None
    """The most agents to train as one batch."""
    workers: int = 1
    """How many populations to train at once, each in a process of its own on this machine."""
    ray: str | None = None
    """Hand populations to a Ray cluster: its address, "auto", or "local"."""
    ray_cores: int = 1
    """Processor cores for each population there; with --device cuda each has a GPU to itself as well."""
    engine: EngineOptions = field(default_factory=EngineOptions)

    def run(self) -> None:
        """List, or train and record."""
        unset = dict.fromkeys(("compile", "tf32", "overlap"), False)
        settings = {name: value for name, value in given(self.engine).items() if unset.get(name) is not value}
        runner: Runner | None = partial(run_in_workers, workers=self.workers) if self.workers != 1 else None
        if self.ray is not None:
            # The machines that train may have a device which this one lacks.
            device = settings.pop("device", "cpu")
            runner = partial(run_on_ray, address=self.ray, device=device, cores=self.ray_cores)
        if self.list:
            settings.pop("device", None)  # what is missing is the same from any machine
        seeds = self.seed_list or self.seeds
        request = Request(
            self.experiments, self.tasks, self.methods, self.backbones, seeds, self.protocol, self.steps, self.episodes,
            settings,
        )  # fmt: skip
        if self.list:
            show(request, self.results)
        elif not self.experiments:
            raise DamperError(f"experiments must name one or more of {', '.join(EXPERIMENTS)}; --list describes them.")
        else:
            outcome = reproduce(request, self.results, self.out, self.population, runner=runner)
            Console().print(
                f"{outcome.wanted} agents: {outcome.there} were there, {outcome.added} added, {outcome.left} left"
                + (" (another process is training them)" if outcome.left else "")
                + f"; next: damper report --results {self.results}",
                highlight=False,
            )


def show(request: Request, results: Path) -> None:
    """Print how far each experiment is."""
    rows = []
    for row in overview(request, results):
        missing = row.total - row.done
        time = "unknown yet" if row.seconds is None else duration(row.seconds)
        done = f"{row.done} of {row.total}" + (f"\n(+{row.elsewhere} otherwise)" if row.elsewhere else "")
        rows.append(
            [f"{row.name}\n  {row.title}", done, str(missing), str(row.populations), time if row.populations else "–"]
        )
    header = ["experiment", "agents done", "missing", "populations", "time left"]
    Console().print(terminal_table(f"protocol {request.protocol}, results in {results}", header, rows))
    Console().print(
        "Time left: at the speeds on record for the task. Otherwise: there with other simulators or number formats, "
        "which no table mixes.",
        highlight=False,
    )


def duration(seconds: float) -> str:
    """Hours and minutes."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
