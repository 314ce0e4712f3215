"""``damper compare``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from damper.cli.options import EngineOptions, MethodOptions, chosen_seeds, given
from damper.engine.envs import find_task
from damper.engine.files import write_bytes
from damper.experiments.compare import Comparison, compare
from damper.report.curves import draw_curves
from damper.report.tables import markdown_table, terminal_table
from damper.report.traces import draw_traces


@dataclass
class Compare:
    """Train several methods alike, evaluate them on the same seeds, and show table and pictures."""

    env: tyro.conf.Positional[str]
    """A Gymnasium id (Pendulum-v1) or a task of the paper (Hopper)."""
    methods: tuple[str, ...] = ("plain", "damper")
    """Which methods."""
    backbone: Literal["td3", "sac"] = "td3"
    """The actor-critic algorithm."""
    seeds: int = 3
    """How many seeds: the protocol's first ones, or 0, 1, ..."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    steps: int | None = None
    """Environment steps per agent; the paper's budget for its tasks."""
    protocol: Literal["pave", "damper"] | None = None
    """Published settings to start from."""
    episodes: int = 10
    """Evaluation episodes per agent, on the protocol's fixed seeds."""
    out: Path = Path("runs/compare")
    """Where runs, records and pictures go."""
    engine: EngineOptions = field(default_factory=EngineOptions)
    options: MethodOptions = field(default_factory=MethodOptions)  # type: ignore[valid-type]
    """Settings of the method."""

    def run(self) -> None:
        """Train, evaluate, show."""
        comparison = compare(
            self.env,
            self.methods,
            self.backbone,
            chosen_seeds(self.seeds, self.seed_list),
            self.steps,
            self.protocol,
            self.out,
            self.episodes,
            **given(self.engine, self.options),
        )
        show(comparison, self.out)


def show(comparison: Comparison, out: Path) -> None:
    """Print the table and write it with the pictures."""
    title = f"{comparison.env} {comparison.backbone}: mean (spread over seeds; pooled over episodes)"
    header, rows = comparison.table()
    console = Console()
    console.print(terminal_table(title, header, rows))
    write_bytes(out / "table.md", markdown_table(header, rows).encode())
    traces = {name: evaluation.episodes[0][0].executed for name, evaluation in comparison.evaluations.items()}
    first = next(iter(comparison.evaluations.values()))
    subtitle = f"{comparison.env}, training seed {first.agents[0]['seed']}, episode seed {first.episodes[0][0].seed}"
    pictures = [
        draw_traces(traces, out / "traces.png", subtitle, find_task(comparison.env).period),
        draw_curves(comparison.runs, out / "curves.png", f"{comparison.env} {comparison.backbone}"),
    ]
    console.print("pictures: " + ", ".join(str(path) for path in pictures), highlight=False)
