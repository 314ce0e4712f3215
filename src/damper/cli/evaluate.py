"""``damper evaluate``."""

from __future__ import annotations

from pathlib import Path

from damper.cli.options.evaluate import Evaluate
from damper.engine.run.files import check_folder
from damper.engine.run.folder import Run
from damper.errors import MissingExtraError
from damper.evaluation.evaluate import Evaluation, evaluate
from damper.experiments.compare import MEASURES, spread_cell
from damper.export import find_path
from damper.filters import parse_filter
from damper.report.traces import draw_traces
from damper.tasks import find_task
from damper.terminal import quoted, say, show


def run(options: Evaluate) -> None:
    """Evaluate, save, show."""
    chosen = parse_filter(options.filter) if options.filter else None
    out = options.out or _default_folder(options)
    check_folder("out", out)
    evaluation = evaluate(
        options.source,
        options.env,
        options.episodes,
        options.seed_list or None,
        chosen,
        options.envs,
        vecnormalize=options.vecnormalize,
        trust=options.trust,
    )
    evaluation.save(out)
    if options.source.is_dir() and not (run := Run(options.source)).finished:
        of = run.manifest["settings"]["steps"]
        say(f"{options.source} is not finished: policies of step {evaluation.steps:,} of {of:,}", "yellow")
    show(f"{evaluation.env}: mean (over seeds; pooled)", *table(evaluation))
    try:
        picture = draw_first_episodes(evaluation, out / "traces.png")
    except MissingExtraError as error:
        say(f"records and traces in {quoted(out)}; {error}")
    else:
        say(f"records, traces and picture in {quoted(out)} ({picture.name})")


def _default_folder(options: Evaluate) -> Path:
    """Within a run's folder, or beside a file."""
    name = "evaluation" if options.filter is None else f"evaluation-{options.filter.replace(':', '-')}"
    source = find_path(options.source)
    return source / name if source.is_dir() else source.with_name(f"{source.stem}-{name}")


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
