"""``damper compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from damper.cli.options import chosen_seeds, given
from damper.cli.options.compare import Compare
from damper.compare import Comparison, compare
from damper.errors import MissingExtraError
from damper.files import check_folder, write_bytes
from damper.intervals import Array, change_of_mean
from damper.metrics import MEASURES, SMOOTHNESS
from damper.plots.curves import draw_curves
from damper.plots.episodes import film_evaluations, first_episodes
from damper.plots.traces import draw_traces
from damper.plots.video import check_video
from damper.policies.evaluate import Evaluation
from damper.seed_groups import group_by_settings
from damper.tables import markdown_table
from damper.tasks import find_task
from damper.terminal import quoted, say, show

FEWEST_SEEDS = 3  # with two, an interval is too wide to say anything
LEGEND = (
    "Spread is the sample standard deviation of the seeds' means; pooled is that of all episodes "
    "of all seeds. A change is the difference of the means in per cent of plain's, with an "
    "interval over seeds; there is none for fewer than three seeds, nor for smoothness where most "
    "agents hold one action."
)


def run(options: Compare) -> None:
    """Train, evaluate and show the comparison."""
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


def changes_against_plain(comparison: Comparison) -> list[list[str]]:
    """The change of each row's means against plain's, by measure, with its interval over seeds.

    Empty for plain itself, where either has fewer than ``FEWEST_SEEDS`` seeds, and for smoothness
    where most agents of either hold one action.
    """
    cells = {method: _cells(evaluation) for method, evaluation in comparison.evaluations.items()}
    changes = []
    for method_cells in cells.values():
        for cell in method_cells:
            # Plain has only settings that all methods share, such as a swept learning_rate.
            base = next(
                (
                    candidate
                    for candidate in cells.get("plain", ())
                    if candidate.settings.items() <= cell.settings.items()
                ),
                None,
            )
            changes.append(
                [
                    "" if base is None or base is cell else _change(cell, base, name)
                    for name in MEASURES
                ]
            )
    return changes


class _Cell(NamedTuple):
    """Agents that differ only by seed, with each measure's mean by seed."""

    settings: dict[str, Any]
    means: dict[str, Array]
    mostly_constant: bool


def _cells(evaluation: Evaluation) -> list[_Cell]:
    records, constant = evaluation.records(), set(evaluation.constant_agents())
    cells = []
    for members in group_by_settings(evaluation.agents).values():
        settings = {
            name: value for name, value in evaluation.agents[members[0]].items() if name != "seed"
        }
        means = {
            name: np.array(
                [
                    np.mean([row[name] for row in records if row["agent"] == agent])
                    for agent in members
                ]
            )
            for name in MEASURES
        }
        cells.append(_Cell(settings, means, 2 * len(constant & set(members)) > len(members)))
    return cells


def _change(ours: _Cell, plain: _Cell, measure: str) -> str:
    values, base = ours.means[measure], plain.means[measure]
    if (
        min(len(values), len(base)) < FEWEST_SEEDS
        or not base.mean()
        or {*values} == {*base} == {base[0]}
    ):
        return ""  # the last condition: one value everywhere, as a length at the time limit
    if measure in SMOOTHNESS and (ours.mostly_constant or plain.mostly_constant):
        return ""
    return str(change_of_mean(base, values, measure))


def present(comparison: Comparison, out: Path) -> None:
    """Print the table and write it to a file, with pictures if matplotlib is installed."""
    title = (
        f"{comparison.env} {comparison.backbone}: mean (spread over seeds; pooled over episodes)"
    )
    header, rows = comparison.table()
    try:
        changes = changes_against_plain(comparison)
    except MissingExtraError as error:
        say(f"changes against plain are not shown: {error}")
        changes = [[""] * len(MEASURES)] * len(rows)
    if any(map(any, changes)):
        title += ", change against plain [95 % interval]"
    rows = [
        [
            *row[:2],
            *(
                f"{cell}\n{change}".rstrip()
                for cell, change in zip(row[2:], row_changes, strict=True)
            ),
        ]
        for row, row_changes in zip(rows, changes, strict=True)
    ]
    show(title, header, rows)
    write_bytes(
        out / "table.md", f"**{title}**\n\n{markdown_table(header, rows)}\n{LEGEND}\n".encode()
    )
    traces = {
        f"{method} {label}".removesuffix(" all"): trace
        for method, evaluation in comparison.evaluations.items()
        for label, trace in first_episodes(evaluation, method).items()
    }
    first = next(iter(comparison.evaluations.values()))
    subtitle = (
        f"{comparison.env}, training seed {first.agents[0]['seed']}, episode seed "
        f"{first.episodes[0][0].seed}"
    )
    try:
        draw_traces(traces, out / "traces.png", subtitle, find_task(comparison.env).period)
        draw_curves(comparison.runs, out / "curves.png", f"{comparison.env} {comparison.backbone}")
    except MissingExtraError as error:
        say(f"table and records in {quoted(out)}; {error}")
    else:
        say(f"table, records and pictures in {quoted(out)} (table.md, traces.png, curves.png)")
