"""``damper compare``."""

from __future__ import annotations

from pathlib import Path

from damper.cli.options import chosen_seeds, given
from damper.cli.options.compare import Compare
from damper.engine.run.files import check_folder, write_bytes
from damper.errors import MissingExtraError
from damper.experiments.compare import Comparison, compare
from damper.report.figures.curves import draw_curves
from damper.report.figures.episodes import film_evaluations, first_episodes
from damper.report.figures.traces import draw_traces
from damper.report.figures.video import check_video
from damper.report.tables.markup import markdown_table
from damper.tasks import find_task
from damper.terminal import quoted, say, show


def run(options: Compare) -> None:
    """Train, evaluate, show."""
    if options.out is not None:
        check_folder("out", options.out)
    if options.video is not None:
        check_video(options.video)
        check_folder("video", options.video.parent)
    comparison = compare(
        options.env,
        options.methods,
        options.backbone,
        chosen_seeds(options.seeds, options.seed_list, Compare.seeds),
        options.steps,
        options.protocol,
        options.out,
        options.episodes,
        **given(options.engine, options.settings),
    )
    present(comparison, comparison.path)
    if options.video is not None:
        films = film_evaluations(comparison.evaluations, options.video, steps=options.video_steps)
        say(f"video: {quoted(films)}")


def present(comparison: Comparison, out: Path) -> None:
    """Print the table and write it with the pictures, where matplotlib is there."""
    title = f"{comparison.env} {comparison.backbone}: mean (spread over seeds; pooled over episodes)"
    header, rows = comparison.table()
    show(title, header, rows)
    write_bytes(out / "table.md", markdown_table(header, rows).encode())
    traces = {
        f"{method} {label}".removesuffix(" all"): trace
        for method, evaluation in comparison.evaluations.items()
        for label, trace in first_episodes(evaluation, method).items()
    }
    first = next(iter(comparison.evaluations.values()))
    subtitle = f"{comparison.env}, training seed {first.agents[0]['seed']}, episode seed {first.episodes[0][0].seed}"
    try:
        draw_traces(traces, out / "traces.png", subtitle, find_task(comparison.env).period)
        draw_curves(comparison.runs, out / "curves.png", f"{comparison.env} {comparison.backbone}")
    except MissingExtraError as error:
        say(f"table and records in {quoted(out)}; {error}")
    else:
        say(f"table, records and pictures in {quoted(out)} (table.md, traces.png, curves.png)")
