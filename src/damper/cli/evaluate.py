"""``damper evaluate``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from damper.engine.envs import find_task
from damper.errors import DamperError
from damper.evaluation.evaluate import Evaluation, evaluate
from damper.evaluation.filters import Filter, parse_filter
from damper.experiments.compare import MEASURES, spread_cell
from damper.export import find_path, open_source
from damper.report.tables import terminal_table
from damper.report.traces import draw_traces


@dataclass
class Evaluate:
    """Deterministic episodes of any policy: table, records, action traces, and a picture of them."""

    source: tyro.conf.Positional[Path]
    """A run's folder, a policy file, a Stable-Baselines3 zip (with or without its ending), or an ONNX file."""
    env: str | None = None
    """The environment, where the source does not tell it or another one is wanted."""
    episodes: int = 10
    """How many, on the protocol's fixed seeds."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    filter: str | None = None
    """Filter the executed action: low-pass:ALPHA or slew-rate:LIMIT."""
    envs: Literal["gymnasium", "envpool"] = "gymnasium"
    """Who steps the environments."""
    out: Path | None = None
    """Where to write; by default evaluation/ in the run's folder, or beside the file."""
    vecnormalize: Path | None = None
    """Statistics that VecNormalize saved, for a Stable-Baselines3 zip."""
    trust: bool = False
    """Allow unpickling what cannot be read otherwise: it runs whatever code the file carries."""

    def run(self) -> None:
        """Evaluate, save, show."""
        chosen = parse_filter(self.filter) if self.filter else None
        evaluation = self.evaluate(chosen)
        name = "evaluation" if self.filter is None else f"evaluation-{self.filter.replace(':', '-')}"
        source = find_path(self.source)
        beside = source.with_name(f"{source.stem}-{name}")
        out = self.out or (source / name if source.is_dir() else beside)
        evaluation.save(out)
        console = Console()
        console.print(terminal_table(f"{evaluation.env}: mean (over seeds; pooled)", *table(evaluation)))
        picture = draw_first_episodes(evaluation, out / "traces.png")
        console.print(f"records, traces and picture in {out} ({picture.name})", highlight=False)

    def evaluate(self, chosen: Filter | None) -> Evaluation:
        """A run as the engine knows it; anything else through the policy that it holds."""
        options = self.episodes, self.seed_list or None, chosen, self.envs
        if self.source.is_dir() or self.source.suffix == ".safetensors":
            return evaluate(self.source, self.env, *options)
        opened = open_source(self.source, env=self.env, vecnormalize=self.vecnormalize, trust=self.trust)
        if opened.env is None:
            raise DamperError(f"{self.source} does not tell its environment: name it with --env.")
        evaluation = evaluate(opened.act, opened.env, *options)
        return replace(evaluation, agents=[{"seed": opened.facts.get("seed", 0)}])


def table(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Header and rows, a row per group; raw smoothness and saturation beside it where a filter ran."""
    summary = evaluation.summary()
    measures = dict(MEASURES)
    if any("raw_smoothness" in values for values in summary.values()):
        measures |= {"raw_smoothness": ("raw sm", "{:.3f}"), "saturation": ("saturated", "{:.1%}")}
    rows = []
    for label, values in summary.items():
        rows.append([label, *(spread_cell(values[name], form) for name, (_, form) in measures.items())])
    return ["agents", *(title for title, _ in measures.values())], rows


def draw_first_episodes(evaluation: Evaluation, path: Path, most: int = 6) -> Path:
    """The first agents' first episodes."""
    traces = {}
    for index, episodes in enumerate(evaluation.episodes[:most]):
        traces[f"agent {index}, training seed {evaluation.agents[index]['seed']}"] = episodes[0].executed
    seed = evaluation.episodes[0][0].seed
    return draw_traces(traces, path, f"{evaluation.env}, episode seed {seed}", find_task(evaluation.env).period)
