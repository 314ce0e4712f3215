"""What each method's policy does on Pendulum, beside the plain one's and DAMPER's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from damper.errors import DamperError
from damper.methods import METHODS
from damper.metrics import smoothness
from damper.plots.style import draw_all, look
from damper.plots.traces import Trace, draw_trace
from damper.tasks import find_task
from paper.experiments.catalogue import BACKBONES
from paper.experiments.printed import title
from paper.experiments.records import unpack_trace
from paper.experiments.store import Record, Store
from paper.statistics.cells import Setup, setups
from paper.statistics.numbers import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASK = "Pendulum"
Row = tuple[Setup, str, dict[str, Record]]  # where from, the backbone, and a record per method


def draw_method_figures(
    results: str | Path, folder: Path, formats: Sequence[str] = ("svg",)
) -> list[Path]:
    """``<method>.svg`` for every method whose agents are on record."""
    every_setup = setups(Store(results))
    pictured = {method: compared(every_setup, method) for method in METHODS if method != "plain"}
    chosen = {method: rows for method, rows in pictured.items() if rows}
    if not chosen:
        raise DamperError(
            f"results must hold traced {TASK} records of plain and damper, but {str(results)!r} "
            "does not: run python -m paper reproduce first."
        )
    figures = {method: partial(_draw, rows) for method, rows in chosen.items()}
    return draw_all(figures, folder, formats, {"font.size": 8})


def compared(setups: Sequence[Setup], method: str) -> list[Row]:
    """Per backbone the first setup and seed that plain, the method and DAMPER share."""
    rows = []
    for backbone in BACKBONES:
        candidates = ((setup, _traced(setup, backbone, method)) for setup in setups)
        row = next(((setup, backbone, records) for setup, records in candidates if records), None)
        if row is not None:
            rows.append(row)
    return rows


def _traced(setup: Setup, backbone: str, method: str) -> dict[str, Record]:
    """A record of each method from the first training seed of which all have one."""
    by_seed = {}
    for name in dict.fromkeys(("plain", method, "damper")):
        cell = setup.find(backbone, TASK, name)
        by_seed[name] = {r.identity["seed"]: r for r in cell.records if r.trace} if cell else {}
    for seed in by_seed["plain"]:
        if all(seed in records for records in by_seed.values()):
            return {name: records[seed] for name, records in by_seed.items()}
    return {}


def _draw(rows: Sequence[Row], figure: Figure) -> None:
    """A row per backbone, a panel per method."""
    figure.set_size_inches(8.4, 1.75 * len(rows))
    for part, row in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        _panels(part, *row)


def _panels(part: Any, setup: Setup, backbone: str, records: Mapping[str, Record]) -> None:
    """The executed actions over time on one scale, the action's range."""
    axes = part.subplots(1, len(records), sharey=True, squeeze=False)[0]
    period = find_task(TASK).period or 1.0
    for axis, (method, record) in zip(axes, records.items(), strict=True):
        trace = record.trace or {}
        actions, low, high = unpack_trace(trace), np.array(trace["low"]), np.array(trace["high"])
        draw_trace(axis, Trace(actions, low, high, look(method)), period=period)
        earned = record.episodes["return"][record.episodes["seed"].index(trace["seed"])]
        measures = f"return {number(earned, 'return')}, sm {smoothness(actions):.3f}"
        axis.set_title(f"{title(method, backbone)}: {measures}", fontsize=8)
        axis.set(xlabel="time (s)", ylabel="action" if axis is axes[0] else "")
    seeds = f"training seed {record.identity['seed']}, episode seed {trace['seed']}"
    words = f"{TASK}, {backbone.upper()}, protocol {setup.protocol}, {seeds}{setup.unlike}"
    part.suptitle(words, x=0.01, ha="left", fontsize=9)
