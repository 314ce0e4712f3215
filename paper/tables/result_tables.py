"""The paper's tables filled from records, beside the paper's own numbers."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from damper.intervals import relative_change
from damper.metrics import NEVER_NEGATIVE, SMOOTHNESS
from damper.provenance import digest
from damper.tasks import PAPER_TASKS
from damper.terminal import counted
from paper.claims.comparisons import MIN_SEEDS
from paper.experiments.catalogue import (
    ABLATION_TASKS,
    BACKBONES,
    ETAS,
    ONE_ETA,
    TABLE_METHODS,
    WEIGHTS,
)
from paper.experiments.identity import published_settings
from paper.experiments.printed import Printed, paper, printed, title
from paper.experiments.timings import Timing, ratio_of_rounds
from paper.statistics.cells import COMPARED, MEASURES, Cell, Setup, smoothest
from paper.statistics.estimates import Summary, mean_interval, probability_of_improvement
from paper.statistics.numbers import number, with_interval

ABLATION = ("damper", "unconditional-projection", "unconditional-sum", "pegrad")


class Entry(NamedTuple):
    """One place in a table: what was measured, what the paper prints."""

    ours: Summary | None
    paper: Printed | None
    best: bool = False
    frozen: bool = False
    constant: str = ""


class Table(NamedTuple):
    """Rows of entries with their labels; ``measure`` says how to write the numbers."""

    name: str
    caption: str
    measure: str
    columns: list[str]
    rows: list[tuple[str, list[Entry]]]


class Row(NamedTuple):
    """A row of a table: a method at its published settings, or with some of them changed."""

    label: str
    method: str
    changed: Mapping[str, float] = {}


ONE_ETA_LABEL = f"DAMPER, η = {ONE_ETA:g} everywhere"


def main_tables(setup: Setup, backbones: Sequence[str] = BACKBONES) -> list[Table]:
    """Per backbone and measure: every published method on every task."""
    tables = []
    for backbone in backbones:
        rows = _main_rows(setup, backbone)
        for measure, measure_title in MEASURES.items():
            name, caption = f"{backbone}-{measure}", f"{backbone.upper()}: {measure_title}"
            table = _table(setup, name, caption, backbone, measure, rows, setup.tasks(backbone))
            if table.rows:
                tables.append(table)
    return tables


def best_cells(setup: Setup) -> dict[str, list[Cell]]:
    """By measure, the cells that the main tables mark as the best of a column."""
    columns = [
        [
            setup.find(backbone, task, row.method, **row.changed)
            for row in _main_rows(setup, backbone)
        ]
        for backbone in BACKBONES
        for task in setup.tasks(backbone)
    ]
    return {
        measure: [cell for column in columns for cell in best_of(column, measure)]
        for measure in MEASURES
    }


def _main_rows(setup: Setup, backbone: str) -> list[Row]:
    """The paper's methods, DAMPER with one η, and other methods at their published settings."""
    found = {cell.method for cell in setup.published if cell.backbone == backbone}
    methods = [m for m in TABLE_METHODS if m in found]
    rows = [Row(title(method, backbone), method) for method in methods]
    if set(setup.tasks(backbone)) & set(PAPER_TASKS):  # for others the paper has chosen no η
        rows.append(Row(ONE_ETA_LABEL, "damper", {"eta": ONE_ETA}))
    others = sorted(found - {*TABLE_METHODS, *ABLATION, "scalarization"})
    return [*rows, *(Row(title(method, backbone), method) for method in others)]


def ablation_tables(setup: Setup, backbones: Sequence[str] = BACKBONES) -> list[Table]:
    """The projection ablation and the PEGrad-based baseline."""
    tables = []
    for backbone in backbones:
        cells = {
            task: [m for m in ABLATION if setup.find(backbone, task, m)]
            for task in setup.tasks(backbone)
        }
        tasks = [task for task, methods in cells.items() if set(methods) - {"damper"}]
        methods = [m for m in ABLATION if any(m in cells[task] for task in tasks)]
        for measure in ("return", "sm") if tasks else ():
            caption = f"{backbone.upper()}, how the gradients are combined: {MEASURES[measure]}"
            name = f"{backbone}-ablation-{measure}"
            rows = [Row(title(method, backbone), method) for method in methods]
            tables.append(_table(setup, name, caption, backbone, measure, rows, tasks))
    return tables


def _table(
    setup: Setup,
    name: str,
    caption: str,
    backbone: str,
    measure: str,
    rows: Sequence[Row],
    tasks: Sequence[str],
) -> Table:
    cells = {
        (row.label, t): setup.find(backbone, t, row.method, **row.changed)
        for row in rows
        for t in tasks
    }
    best = {task: best_of([cells[row.label, task] for row in rows], measure) for task in tasks}
    filled = []
    for row in rows:
        entries = [
            entry(cells[row.label, task], measure, backbone, row, task, best[task])
            for task in tasks
        ]
        if any(e.ours for e in entries):
            filled.append((row.label, entries))
    return Table(name, caption, measure, list(tasks), filled)


def entry(
    cell: Cell | None, measure: str, backbone: str, row: Row, task: str, best: Sequence[Cell]
) -> Entry:
    """A cell's numbers beside the paper's, which stand where its settings are the row's."""
    settings = published_settings(row.method, task, backbone)
    theirs = (
        printed(backbone, row.method, task, measure)
        if {**settings, **row.changed} == settings
        else None
    )
    if cell is None:
        return Entry(None, theirs)
    return Entry(cell.summary(measure), theirs, cell in best, bool(cell.frozen), cell.constant_note)


def best_of(cells: Sequence[Cell | None], measure: str) -> list[Cell]:
    """The cells with the highest mean return or the lowest mean of another measure.

    What prints alike is a tie.

    Of cells with the seeds that a claim needs; the smoothness of one constant action is never the
    best. An episode's length has no best, and neither has a single cell.
    """
    enough = (cell for cell in cells if cell is not None and len(cell.means(measure)) >= MIN_SEEDS)
    counted = {id(cell): cell for cell in enough if measure not in SMOOTHNESS or not cell.constant}
    if measure == "length" or len(counted) < 2:
        return []
    sign = -1 if measure == "return" else 1
    first = min(counted.values(), key=lambda cell: sign * cell.mean(measure))
    shown = number(first.mean(measure), measure)
    return [cell for cell in counted.values() if number(cell.mean(measure), measure) == shown]


_UNCLEAN = {
    "uncommitted": "of an uncommitted tree",
    "unknown": "of unknown code",
    " then ": "that one version began and another finished",
}


def code_versions(cells: Iterable[Cell]) -> str:
    """The versions of the code that made some cells' agents; mixed or unclean ones are flagged."""
    versions = Counter(record.code for cell in cells for record in cell.records)
    named = ", ".join(
        f"{version} ({counted(count, 'agent')})" for version, count in versions.most_common()
    )
    flags = [f"a mixture of {len(versions)} versions"] if len(versions) > 1 else []
    for word, flag in _UNCLEAN.items():
        if count := sum(count for version, count in versions.items() if word in version):
            flags.append(f"{counted(count, 'agent')} {flag}")
    return named + (f". ⚠ {', '.join(flags)}" if flags else "")


def sweep_rows(setup: Setup) -> list[list[str]]:
    """Per task: the smoothest fixed weight here and in the paper, and DAMPER."""
    rows = []
    for task in PAPER_TASKS:
        cells = setup.sweep(task)
        if not cells:
            continue
        best = smoothest(cells)
        ours, theirs = (
            setup.find("td3", task, "damper"),
            paper()["scalarization_td3_lowest_sm"][task],
        )
        rows.append(
            [
                task,
                f"{best:g} ({len(cells)} of {len(WEIGHTS)})",
                number(cells[best].mean("return"), "return"),
                _smoothness(cells[best]),
                number(ours.mean("return"), "return") if ours else "",
                _smoothness(ours),
                f"{theirs['lambda']:g}",
                number(theirs["re"], "return") if "re" in theirs else "",
                number(theirs["sm"], "sm"),
            ]
        )
    return rows


SWEEP_HEADER = ["task", "smoothest λ", "its return", "its sm", "DAMPER return", "DAMPER sm"]
SWEEP_HEADER += ["paper's λ", "paper's return", "paper's sm"]


def eta_rows(setup: Setup) -> list[list[str]]:
    """Mean sm of each η, per task."""
    return [
        [task, *(_smoothness(cells.get(eta)) for eta in ETAS)]
        for task, cells in _swept_etas(setup).items()
    ]


def _swept_etas(setup: Setup) -> dict[str, dict[float, Cell]]:
    """TD3's cells by η, of the paper's tasks that have several."""
    return {task: cells for task in ABLATION_TASKS if len(cells := setup.etas(task)) > 1}


def other_rows(setup: Setup) -> list[list[str]]:
    """Cells that no other table has: methods of one's own, and settings that nobody published."""
    rows, shown = [], {id(cell) for cell in _shown(setup)}
    for cell in setup.cells:
        if id(cell) not in shown:
            code = cell.records[0].identity.get("custom_code")
            code_notes = [f"code {digest(code)[:8]}"] if code else []
            words = ", ".join(
                [*(f"{name}={value}" for name, value in cell.settings.items()), *code_notes]
            )
            means = [with_interval(cell.mean(m), mean_interval(cell.means(m)), m) for m in COMPARED]
            place = "<br>".join(filter(None, (cell.place, cell.constant_note)))
            rows.append(
                [
                    place,
                    title(cell.method, cell.backbone),
                    words or "–",
                    str(len(cell.seeds)),
                    *means,
                ]
            )
    return rows


OTHER_HEADER = ["task", "method", "settings", "seeds", *(MEASURES[measure] for measure in COMPARED)]


def _shown(setup: Setup) -> Iterator[Cell | None]:
    """The cells of the other tables."""
    yield from setup.published
    for backbone in BACKBONES:
        tasks = setup.tasks(backbone)
        if set(tasks) & set(PAPER_TASKS):
            yield from (setup.find(backbone, task, "damper", eta=ONE_ETA) for task in tasks)
    for task in PAPER_TASKS:
        yield from setup.sweep(task).values()
    for cells in _swept_etas(setup).values():
        yield from cells.values()


def _smoothness(cell: Cell | None) -> str:
    """A cell's mean sm, with a note where agents hold one action."""
    shown = [number(cell.mean("sm"), "sm"), cell.constant_note] if cell else []
    return ", ".join(part for part in shown if part)


class Aggregate(NamedTuple):
    """DAMPER against a method over the tasks both have, and that method's change from plain."""

    backbone: str
    measure: str
    method: str
    tasks: int
    improvement: tuple[float, float, float] | None
    change: tuple[float, float, float] | None
    change_tasks: int


@functools.cache
def aggregates(setup: Setup) -> list[Aggregate]:
    """Probability that a seed of DAMPER beats one of each method.

    Over the tasks on which both have several seeds: from one seed there is no probability.
    """
    out = []
    for backbone in BACKBONES:
        for measure in COMPARED:
            sign = 1.0 if measure == "return" else -1.0
            scores = {m: _by_task(setup, backbone, m, measure) for m in TABLE_METHODS}
            for method in TABLE_METHODS:
                shared = [t for t in scores[method] if t in scores["damper"]]
                if not shared:
                    continue
                ours = {t: sign * scores["damper"][t] for t in shared}
                theirs = {t: sign * scores[method][t] for t in shared}
                better = probability_of_improvement(ours, theirs) if method != "damper" else None
                improvement = (better[0], *better[1]) if better else None
                change = _change(scores[method], scores["plain"], measure)
                tasks = len(scores[method].keys() & scores["plain"].keys())
                out.append(
                    Aggregate(backbone, measure, method, len(shared), improvement, change, tasks)
                )
    return out


def _change(
    ours: dict[str, np.ndarray], plain: dict[str, np.ndarray], measure: str
) -> tuple[float, float, float] | None:
    shared = [task for task in ours if task in plain]
    if not shared or ours is plain:
        return None
    both = {t: ours[t] for t in shared}, {t: plain[t] for t in shared}
    value, bounds = relative_change(*both, never_negative=measure in NEVER_NEGATIVE)
    return (value, *bounds) if bounds else None


def _by_task(setup: Setup, backbone: str, method: str, measure: str) -> dict[str, np.ndarray]:
    cells = {task: setup.find(backbone, task, method) for task in setup.tasks(backbone)}
    counted = {
        t: c for t, c in cells.items() if c and not (measure in SMOOTHNESS and c.mostly_constant)
    }
    found = {task: cell.means(measure) for task, cell in counted.items()}
    return {task: means for task, means in found.items() if len(means) > 1}


class CostTable(NamedTuple):
    """Update times of one measurement: where, by which code, and rows beside the paper's."""

    caption: str
    rows: list[list[str]]


def cost_tables(timings: Sequence[Timing]) -> list[CostTable]:
    """Tables by machine and way of running: milliseconds, times plain, the paper's."""
    places: dict[str, list[Timing]] = {}
    for timing in timings:
        places.setdefault(timing.setting, []).append(timing)
    return [_cost_table(members) for members in places.values()]


def _cost_table(timings: Sequence[Timing]) -> CostTable:
    times = {(timing.backbone, timing.method): timing for timing in timings}
    rows = []
    for name, theirs in paper()["update_time_ms"].items():
        row = [name]
        for backbone in BACKBONES:
            method_timings, plain = (
                times.get((backbone, method)) for method in (paper()["method_ids"][name], "plain")
            )
            row += [
                f"{method_timings.milliseconds:.3g}" if method_timings else "",
                _times_plain(method_timings, plain) if method_timings and plain else "",
            ]
            row += [f"{theirs[backbone]['ms']:.2f}", f"{theirs[backbone]['ratio']:.2f}"]
        rows.append(row)
    commits = sorted({timing.source or f"commit {str(timing.commit)[:10]}" for timing in timings})
    first = timings[0]
    return CostTable(
        f"{first.machine}; {first.task}, batch {first.batch_size}; code {', '.join(commits)}", rows
    )


def _times_plain(timing: Timing, plain: Timing) -> str:
    """Relative to plain; with the middle nine tenths of the rounds where they were kept."""
    if not timing.rounds or len(timing.rounds) != len(plain.rounds):
        return f"{timing.milliseconds / plain.milliseconds:.2f}"
    low, middle, high = ratio_of_rounds(timing.rounds, plain.rounds)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]" if timing is not plain else "1.00"


COST_HEADER = ["method"] + [
    f"{b} {column}"
    for b in ("TD3", "SAC")
    for column in ("ms", "× plain", "paper ms", "paper × plain")
]


def speed_rows(setup: Setup) -> list[list[str]]:
    """Per population size, task and backbone: how fast training ran."""
    rows: dict[tuple[str, ...], list[float]] = {}
    for cell in setup.cells:
        for record in cell.records:
            speed = record.run.get("steps_per_second")
            if speed:
                machine = str(record.hardware.get("gpu", record.hardware.get("cpu", "")))
                key = (
                    cell.task,
                    cell.backbone.upper(),
                    title(cell.method),
                    str(record.run["agents"]),
                    machine,
                )
                rows.setdefault(key, []).append(float(speed))
    return [[*key, f"{np.median(speeds):,.0f}"] for key, speeds in rows.items()]


SPEED_HEADER = ["task", "backbone", "method", "agents at once", "machine", "steps/s of each agent"]
