"""``damper evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from damper.engine.envs import find_task
from damper.evaluation.evaluate import Evaluation, evaluate
from damper.evaluation.filters import parse_filter
from damper.experiments.compare import MEASURES
from damper.report.tables import terminal_table
from damper.report.traces import draw_traces


@dataclass
class Evaluate:
    """Deterministic episodes of a run or a policy: table, records, action traces, and a picture of them."""

    source: tyro.conf.Positional[Path]
    """A run's folder or a policy file."""
    env: str | None = None
    """Another environment than the one it was trained on."""
    episodes: int = 10
    """How many, on the protocol's fixed seeds."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    filter: str | None = None
    """Filter the executed action: low-pass:ALPHA or slew-rate:LIMIT."""
    envs: Literal["gymnasium", "envpool"] = "gymnasium"
    """Who steps the environments."""
    out: Path | None = None
    """Where to write; by default evaluation/ in the run's folder."""

    def run(self) -> None:
        """Evaluate, save, show."""
        chosen = parse_filter(self.filter) if self.filter else None
        evaluation = evaluate(self.source, self.env, self.episodes, self.seed_list or None, chosen, self.envs)
        base = self.source if self.source.is_dir() else self.source.parent
        name = "evaluation" if self.filter is None else f"evaluation-{self.filter.replace(':', '-')}"
        out = self.out or base / name
        evaluation.save(out)
        console = Console()
        console.print(terminal_table(f"{evaluation.env}: mean (over seeds; pooled)", *table(evaluation)))
        picture = draw_first_episodes(evaluation, out / "traces.png")
        console.print(f"records, traces and picture in {out} ({picture.name})", highlight=False)


def table(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Header and rows, a row per group; raw smoothness and saturation beside it where a filter ran."""
    summary = evaluation.summary()
    measures = dict(MEASURES)
    if any("raw_smoothness" in values for values in summary.values()):
        measures |= {"raw_smoothness": ("raw sm", "{:.3f}"), "saturation": ("saturated", "{:.1%}")}
    rows = []
    for label, values in summary.items():
        cells = [values[name] for name in measures]
        texts = [
            f"{form.format(c['mean'])}\n({form.format(c['over_seeds'])}; {form.format(c['pooled'])})"
            for c, (_, form) in zip(cells, measures.values(), strict=True)
        ]
        rows.append([label, *texts])
    return ["agents", *(title for title, _ in measures.values())], rows


def draw_first_episodes(evaluation: Evaluation, path: Path, most: int = 6) -> Path:
    """The first agents' first episodes."""
    traces = {}
    for index, episodes in enumerate(evaluation.episodes[:most]):
        traces[f"agent {index}, training seed {evaluation.agents[index]['seed']}"] = episodes[0].executed
    seed = evaluation.episodes[0][0].seed
    return draw_traces(traces, path, f"{evaluation.env}, episode seed {seed}", find_task(evaluation.env).period)
