"""The paper's tables filled from records, beside the paper's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from damper.experiments.grids import ABLATION_TASKS, ETAS, TABLE_METHODS, WEIGHTS
from damper.experiments.paper import TASKS, Printed, paper, printed, title
from damper.experiments.timings import Timing
from damper.report.cells import MEASURES, Cell, Setup
from damper.report.claims import cost_table
from damper.report.statistics import Summary, probability_of_improvement, relative_iqm

ABLATION = ("damper", "unconditional-projection", "unconditional-sum", "pegrad")


class Entry(NamedTuple):
    """One place in a table: what was measured, what the paper prints, whether it is the best of its column."""

    ours: Summary | None
    paper: Printed | None
    best: bool = False
    frozen: bool = False


class Table(NamedTuple):
    """Rows of entries with their labels; ``measure`` says how to write the numbers."""

    name: str
    caption: str
    measure: str
    columns: list[str]
    rows: list[tuple[str, list[Entry]]]


def main_tables(setup: Setup) -> list[Table]:
    """Per backbone and measure: every published method on every task."""
    tables = []
    for backbone in ("td3", "sac"):
        cells = [cell for cell in setup.cells if cell.backbone == backbone and cell.published]
        methods = [m for m in TABLE_METHODS if any(cell.method == m for cell in cells)]
        methods += sorted({cell.method for cell in cells} - {*TABLE_METHODS, *ABLATION, "scalarization"})
        for measure, words in MEASURES.items():
            name, caption = f"{backbone}-{measure}", f"{backbone.upper()}: {words}"
            table = _table(setup, name, caption, backbone, measure, methods, setup.tasks(backbone))
            if table.rows:
                tables.append(table)
    return tables


def ablation_tables(setup: Setup) -> list[Table]:
    """The projection ablation and the PEGrad-based baseline, on every task that has a cell of them."""
    tables = []
    for backbone in ("td3", "sac"):
        found = {task: [m for m in ABLATION if setup.find(backbone, task, m)] for task in setup.tasks(backbone)}
        tasks = [task for task, methods in found.items() if set(methods) - {"damper"}]
        methods = [m for m in ABLATION if any(m in found[task] for task in tasks)]
        for measure in ("return", "smoothness") if tasks else ():
            caption = f"{backbone.upper()}, how the gradients are combined: {MEASURES[measure]}"
            name = f"{backbone}-ablation-{measure}"
            tables.append(_table(setup, name, caption, backbone, measure, methods, tasks))
    return tables


def _table(
    setup: Setup, name: str, caption: str, backbone: str, measure: str, methods: Sequence[str], tasks: Sequence[str]
) -> Table:
    found = {(m, t): setup.find(backbone, t, m) for m in methods for t in tasks}
    best = {task: _best([found[m, task] for m in methods], measure) for task in tasks}
    rows = []
    for method in methods:
        entries = [entry(found[method, task], measure, backbone, method, task, best[task]) for task in tasks]
        if any(e.ours for e in entries):
            rows.append((title(method, backbone), entries))
    return Table(name, caption, measure, list(tasks), rows)


def entry(cell: Cell | None, measure: str, backbone: str, method: str, task: str, best: Cell | None) -> Entry:
    """A cell's numbers beside the paper's."""
    theirs = printed(backbone, method, task, measure)
    if cell is None:
        return Entry(None, theirs)
    return Entry(cell.summary(measure), theirs, cell is best, bool(cell.frozen))


def _best(cells: Sequence[Cell | None], measure: str) -> Cell | None:
    """The cell with the highest mean return or the lowest mean of another measure; an episode's length has no best."""
    known = [cell for cell in cells if cell is not None and np.isfinite(cell.mean(measure))]
    if measure == "length" or len(known) < 2:
        return None
    sign = -1 if measure == "return" else 1
    return min(known, key=lambda cell: sign * cell.mean(measure))


def sweep_rows(setup: Setup) -> list[list[str]]:
    """Per task: the smoothest fixed weight here and in the paper, and DAMPER."""
    rows = []
    for task in TASKS:
        cells = setup.sweep(task)
        if not cells:
            continue
        best = min(cells, key=lambda weight: cells[weight].mean("smoothness"))
        ours, theirs = setup.find("td3", task, "damper"), paper()["scalarization_td3_lowest_sm"][task]
        rows.append(
            [
                task,
                f"{best:g} ({len(cells)} of {len(WEIGHTS)})",
                number(cells[best].mean("return"), "return"),
                number(cells[best].mean("smoothness"), "smoothness"),
                number(ours.mean("return"), "return") if ours else "",
                number(ours.mean("smoothness"), "smoothness") if ours else "",
                f"{theirs['lambda']:g}",
                number(theirs["re"], "return") if "re" in theirs else "",
                number(theirs["sm"], "smoothness"),
            ]
        )
    return rows


SWEEP_HEADER = ["task", "smoothest λ", "return", "sm", "DAMPER return", "DAMPER sm"]
SWEEP_HEADER += ["paper's λ", "paper's return", "paper's sm"]


def eta_rows(setup: Setup) -> list[list[str]]:
    """Mean sm of each η, per task."""
    rows = []
    for task in ABLATION_TASKS:
        cells = [setup.find("td3", task, "damper", eta=eta) for eta in ETAS]
        if sum(cell is not None for cell in cells) > 1:
            rows.append([task, *(number(cell.mean("smoothness"), "smoothness") if cell else "" for cell in cells)])
    return rows


class Aggregate(NamedTuple):
    """DAMPER against one method over the tasks both have: value and interval of two aggregates."""

    backbone: str
    measure: str
    method: str
    tasks: int
    improvement: tuple[float, float, float]
    change: tuple[float, float, float] | None


def aggregates(setup: Setup) -> list[Aggregate]:
    """Probability that a seed of DAMPER beats one of each method, and each method's change against plain."""
    out = []
    for backbone in ("td3", "sac"):
        for measure in ("return", "smoothness", "mean_change"):
            sign = 1.0 if measure == "return" else -1.0
            scores = {m: _by_task(setup, backbone, m, measure) for m in TABLE_METHODS}
            for method in TABLE_METHODS:
                name = f"{backbone}/{measure}/{method}"
                shared = [t for t in scores[method] if t in scores["damper"]]
                if not shared:
                    continue
                ours = {t: sign * scores["damper"][t] for t in shared}
                theirs = {t: sign * scores[method][t] for t in shared}
                value, bounds = probability_of_improvement(ours, theirs, name)
                change = _change(scores[method], scores["plain"], name)
                out.append(Aggregate(backbone, measure, method, len(shared), (value, *bounds), change))
    return out


def _change(ours: dict[str, np.ndarray], plain: dict[str, np.ndarray], name: str) -> tuple[float, float, float] | None:
    shared = [task for task in ours if task in plain]
    if not shared:
        return None
    value, bounds = relative_iqm({t: ours[t] for t in shared}, {t: plain[t] for t in shared}, f"{name}/change")
    return (value, *bounds)


def _by_task(setup: Setup, backbone: str, method: str, measure: str) -> dict[str, np.ndarray]:
    cells = {task: setup.find(backbone, task, method) for task in setup.tasks(backbone)}
    found = {task: cell.means(measure) for task, cell in cells.items() if cell is not None}
    return {task: means for task, means in found.items() if len(means)}


def cost_rows(timings: Sequence[Timing]) -> list[list[str]]:
    """Update times here and in the paper."""
    tables = {backbone: cost_table(timings, backbone) for backbone in ("td3", "sac")}
    rows = []
    for name, theirs in paper()["update_time_ms"].items():
        method = paper()["method_ids"][name]
        row = [name]
        for backbone, times in tables.items():
            ratio = times[method] / times["plain"] if method in times and "plain" in times else None
            row += [f"{times[method]:.3g}" if method in times else "", f"{ratio:.2f}" if ratio else ""]
            row += [f"{theirs[backbone]['ms']:.2f}", f"{theirs[backbone]['ratio']:.2f}"]
        rows.append(row)
    return rows


COST_HEADER = ["method"] + [
    f"{b} {column}" for b in ("TD3", "SAC") for column in ("ms", "×", "paper's ms", "paper's ×")
]


def speed_rows(setup: Setup) -> list[list[str]]:
    """Per population size, task and backbone: how fast training ran."""
    rows: dict[tuple[str, ...], list[float]] = {}
    for cell in setup.cells:
        for record in cell.records:
            speed = record.run.get("steps_per_second")
            if speed:
                machine = str(record.hardware.get("gpu", record.hardware.get("cpu", "")))
                key = (cell.task, cell.backbone.upper(), title(cell.method), str(record.run["agents"]), machine)
                rows.setdefault(key, []).append(float(speed))
    return [[*key, f"{np.median(speeds):,.0f}"] for key, speeds in rows.items()]


SPEED_HEADER = ["task", "backbone", "method", "agents at once", "machine", "steps/s of each agent"]


def number(value: float, measure: str, like: float | None = None) -> str:
    """A value as the paper writes it: returns by their size, smoothness to three digits; a spread ``like`` its mean."""
    if measure in ("return", "length"):
        size = abs(value if like is None else like)
        form = "{:.0f}" if size >= 1000 else "{:.1f}" if size >= 20 else "{:.2f}"
    else:
        form = "{:.3f}" if measure == "smoothness" else "{:.4f}"
    return form.format(value).replace("-", "−")
