"""The paper's tables filled from records, beside the paper's own numbers."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from damper.intervals import Interval, relative_change
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
    """A method at its published settings, or with some of them changed."""

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
    best: dict[str, list[Cell]] = {measure: [] for measure in MEASURES}
    for backbone in BACKBONES:
        rows = _main_rows(setup, backbone)
        for task in setup.tasks(backbone):
            column = [setup.find(backbone, task, row.method, **row.changed) for row in rows]
            for measure in MEASURES:
                best[measure] += best_of(column, measure)
    return best


def _main_rows(setup: Setup, backbone: str) -> list[Row]:
    """The paper's methods, DAMPER with one η, and other methods at their published settings."""
    methods = {cell.method for cell in setup.published if cell.backbone == backbone}
    rows = [Row(title(method, backbone), method) for method in TABLE_METHODS if method in methods]
    if set(setup.tasks(backbone)) & set(PAPER_TASKS):  # for others the paper has chosen no η
        rows.append(Row(ONE_ETA_LABEL, "damper", {"eta": ONE_ETA}))
    others = sorted(methods - {*TABLE_METHODS, *ABLATION, "scalarization"})
    return [*rows, *(Row(title(method, backbone), method) for method in others)]


def ablation_tables(setup: Setup, backbones: Sequence[str] = BACKBONES) -> list[Table]:
    """The projection ablation and the PEGrad-based baseline."""
    tables = []
    for backbone in backbones:
        there = {
            task: {m for m in ABLATION if setup.find(backbone, task, m)}
            for task in setup.tasks(backbone)
        }
        tasks = [task for task, methods in there.items() if methods - {"damper"}]
        methods = [m for m in ABLATION if any(m in there[task] for task in tasks)]
        rows = [Row(title(method, backbone), method) for method in methods]
        for measure in ("return", "sm") if tasks else ():
            caption = f"{backbone.upper()}, how the gradients are combined: {MEASURES[measure]}"
            name = f"{backbone}-ablation-{measure}"
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
    filled: dict[str, list[Entry]] = {row.label: [] for row in rows}
    for task in tasks:
        column = [setup.find(backbone, task, row.method, **row.changed) for row in rows]
        best = best_of(column, measure)
        for row, cell in zip(rows, column, strict=True):
            filled[row.label].append(_entry(cell, measure, backbone, row, task, best))
    shown = [(label, entries) for label, entries in filled.items() if any(e.ours for e in entries)]
    return Table(name, caption, measure, list(tasks), shown)


def _entry(
    cell: Cell | None, measure: str, backbone: str, row: Row, task: str, best: Sequence[Cell]
) -> Entry:
    """A cell's numbers beside the paper's, which stand where its settings are the row's."""
    settings = published_settings(row.method, task, backbone)
    is_published = {**settings, **row.changed} == settings
    theirs = printed(backbone, row.method, task, measure) if is_published else None
    if cell is None:
        return Entry(None, theirs)
    return Entry(cell.summary(measure), theirs, cell in best, bool(cell.frozen), cell.constant_note)


def best_of(cells: Sequence[Cell | None], measure: str) -> list[Cell]:
    """The cells with the best mean, of those with enough seeds; what prints alike is a tie.

    The smoothness of one constant action is never the best, and an episode's length has no best.
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
    counts = [f"{version} ({counted(n, 'agent')})" for version, n in versions.most_common()]
    flags = [f"a mixture of {len(versions)} versions"] if len(versions) > 1 else []
    for word, flag in _UNCLEAN.items():
        if count := sum(count for version, count in versions.items() if word in version):
            flags.append(f"{counted(count, 'agent')} {flag}")
    return ", ".join(counts) + (f". ⚠ {', '.join(flags)}" if flags else "")


def sweep_rows(setup: Setup) -> list[list[str]]:
    """Per task: the smoothest fixed weight here and in the paper, and DAMPER."""
    rows = []
    for task in PAPER_TASKS:
        cells = setup.sweep(task)
        if not cells:
            continue
        weight = smoothest(cells)
        row = [task, f"{weight:g} ({len(cells)} of {len(WEIGHTS)})"]
        for cell in (cells[weight], setup.find("td3", task, "damper")):
            row += [number(cell.mean("return"), "return") if cell else "", _smoothness(cell)]
        theirs = paper()["scalarization_td3_lowest_sm"][task]
        their_return = number(theirs["re"], "return") if "re" in theirs else ""
        rows.append([*row, f"{theirs['lambda']:g}", their_return, number(theirs["sm"], "sm")])
    return rows


SWEEP_HEADER = ["task", "smoothest λ", "its return", "its sm", "DAMPER return", "DAMPER sm"]
SWEEP_HEADER += ["paper's λ", "paper's return", "paper's sm"]


def eta_rows(setup: Setup) -> list[list[str]]:
    """Mean sm of each η, per task."""
    swept = _swept_etas(setup).items()
    return [[task, *(_smoothness(cells.get(eta)) for eta in ETAS)] for task, cells in swept]


def _swept_etas(setup: Setup) -> dict[str, dict[float, Cell]]:
    """TD3's cells by η, of the paper's tasks that have several."""
    return {task: cells for task in ABLATION_TASKS if len(cells := setup.etas(task)) > 1}


def other_rows(setup: Setup) -> list[list[str]]:
    """Cells that no other table has: methods of one's own, and settings that nobody published."""
    rows, shown = [], {id(cell) for cell in _shown(setup)}
    for cell in setup.cells:
        if id(cell) not in shown:
            code = cell.records[0].identity.get("custom_code")
            settings = [f"{name}={value}" for name, value in cell.settings.items()]
            settings += [f"code {digest(code)[:8]}"] if code else []
            means = [with_interval(cell.mean(m), mean_interval(cell.means(m)), m) for m in COMPARED]
            place = "<br>".join(filter(None, (cell.place, cell.constant_note)))
            method, seeds = title(cell.method, cell.backbone), str(len(cell.seeds))
            rows.append([place, method, ", ".join(settings) or "–", seeds, *means])
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
    """DAMPER against each method over the tasks on which both have several seeds."""
    out = []
    for backbone in BACKBONES:
        for measure in COMPARED:
            sign = 1.0 if measure == "return" else -1.0
            scores = {m: _by_task(setup, backbone, m, measure) for m in TABLE_METHODS}
            for method in TABLE_METHODS:
                shared = [t for t in scores[method] if t in scores["damper"]]
                if not shared:
                    continue
                improvement = None
                if method != "damper":
                    ours = {task: sign * scores["damper"][task] for task in shared}
                    theirs = {task: sign * scores[method][task] for task in shared}
                    improvement = _flat(probability_of_improvement(ours, theirs))
                change = _change(scores[method], scores["plain"], measure)
                tasks = len(scores[method].keys() & scores["plain"].keys())
                which = (backbone, measure, method)
                out.append(Aggregate(*which, len(shared), improvement, change, tasks))
    return out


def _flat(estimate: tuple[float, Interval | None] | None) -> tuple[float, float, float] | None:
    """A value with its bounds, None without them."""
    return (estimate[0], *estimate[1]) if estimate and estimate[1] else None


def _change(
    ours: dict[str, np.ndarray], plain: dict[str, np.ndarray], measure: str
) -> tuple[float, float, float] | None:
    shared = [task for task in ours if task in plain]
    if not shared or ours is plain:
        return None
    both = {t: ours[t] for t in shared}, {t: plain[t] for t in shared}
    return _flat(relative_change(*both, never_negative=measure in NEVER_NEGATIVE))


def _by_task(setup: Setup, backbone: str, method: str, measure: str) -> dict[str, np.ndarray]:
    """A method's seeds on the tasks where it has several that count."""
    scores = {}
    for task in setup.tasks(backbone):
        cell = setup.find(backbone, task, method)
        if cell and not (measure in SMOOTHNESS and cell.mostly_constant):
            scores[task] = cell.means(measure)
    return {task: means for task, means in scores.items() if len(means) > 1}


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
            ours = times.get((backbone, paper()["method_ids"][name]))
            plain = times.get((backbone, "plain"))
            row.append(f"{ours.milliseconds:.3g}" if ours else "")
            row.append(_times_plain(ours, plain) if ours and plain else "")
            row += [f"{theirs[backbone]['ms']:.2f}", f"{theirs[backbone]['ratio']:.2f}"]
        rows.append(row)
    commits = sorted({timing.source or f"commit {str(timing.commit)[:10]}" for timing in timings})
    first = timings[0]
    how = f"{first.task}, batch {first.batch_size}"
    return CostTable(f"{first.machine}; {how}; code {', '.join(commits)}", rows)


def _times_plain(timing: Timing, plain: Timing) -> str:
    """Relative to plain; with the middle nine tenths of the rounds where they were kept."""
    if not timing.rounds or len(timing.rounds) != len(plain.rounds):
        return f"{timing.milliseconds / plain.milliseconds:.2f}"
    low, middle, high = ratio_of_rounds(timing.rounds, plain.rounds)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]" if timing is not plain else "1.00"


_COSTS = ("ms", "× plain", "paper ms", "paper × plain")
COST_HEADER = ["method", *(f"{backbone} {cost}" for backbone in ("TD3", "SAC") for cost in _COSTS)]


def speed_rows(setup: Setup) -> list[list[str]]:
    """Per population size, task and backbone: how fast training ran."""
    rows: dict[tuple[str, ...], list[float]] = {}
    for cell in setup.cells:
        for record in cell.records:
            if speed := record.run.get("steps_per_second"):
                machine = str(record.hardware.get("gpu", record.hardware.get("cpu", "")))
                size, names = str(record.run["agents"]), (cell.task, cell.backbone.upper())
                key = (*names, title(cell.method), size, machine)
                rows.setdefault(key, []).append(float(speed))
    return [[*key, f"{np.median(speeds):,.0f}"] for key, speeds in rows.items()]


SPEED_HEADER = ["task", "backbone", "method", "agents at once", "machine", "steps/s of each agent"]
