"""The README's table: DAMPER beside plain on every task and backbone, straight from the records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from damper.experiments.grids import ONE_ETA
from damper.report.cells import MEASURES, Cell, Setup
from damper.report.comparisons import percent
from damper.report.result_tables import number
from damper.report.statistics import Interval, relative_change
from damper.report.tables import markdown_table

SHOWN = ("return", "mean_change")


def main_setups(found: Sequence[Setup]) -> list[Setup]:
    """The fullest setup of each protocol, of those that keep to it."""
    first: dict[str | None, Setup] = {}
    for setup in found:
        if setup.protocol and not setup.deviations:
            first.setdefault(setup.protocol, setup)
    return list(first.values())


def headline(found: Sequence[Setup]) -> str:
    """One table, of the fullest setup that keeps to its protocol: plain → DAMPER, and DAMPER with η = 1 everywhere."""
    tables = [f"{table}\nSettings: `{setup.title}`.\n" for setup in main_setups(found) if (table := pairs(setup))]
    return tables[0] if tables else "No records yet.\n"


def pairs(setup: Setup, measures: Sequence[str] = SHOWN) -> str:
    """A row for every task and backbone that has both; empty if none has."""
    header = ["task", "seeds", *(f"{MEASURES[name]}: plain → DAMPER" for name in measures)]
    rows = []
    for backbone in ("td3", "sac"):
        for task in setup.tasks(backbone):
            plain, ours = (setup.find(backbone, task, method) for method in ("plain", "damper"))
            if plain is None or ours is None:
                continue
            one = setup.find(backbone, task, "damper", eta=ONE_ETA)
            words = "the same" if one is ours else _changes(one, plain, measures)
            cells = [_arrow(plain, ours, measure) for measure in measures]
            rows.append(
                [f"{task}, {backbone.upper()}", _seeds(plain, ours), *cells, f"{ours.settings['eta']:g}", words]
            )
    return markdown_table([*header, "paper's η", f"with η = {ONE_ETA:g}"], rows) if rows else ""


def _seeds(*cells: Cell) -> str:
    counts = {len(cell.seeds) for cell in cells}
    return "/".join(str(count) for count in sorted(counts))


def _arrow(plain: Cell, ours: Cell, measure: str) -> str:
    """Both means and the change, with the medians, since one seed can carry a mean."""
    a, b = plain.summary(measure), ours.summary(measure)
    if a is None or b is None:
        return "–"
    means = f"{number(a.mean, measure)} → **{number(b.mean, measure)}**, {change(plain, ours, measure)}"
    return f"{means}<br><small>medians {number(a.median, measure)} → {number(b.median, measure)}</small>"


def _changes(one: Cell | None, plain: Cell, measures: Sequence[str]) -> str:
    if one is None:
        return "not yet trained"
    return ", ".join(f"{MEASURES[measure]} {change(plain, one, measure)}" for measure in measures)


def change(plain: Cell, ours: Cell, measure: str) -> str:
    """The change of the mean in per cent of plain's, with its interval."""
    value, interval = relative_change({"": ours.means(measure)}, {"": plain.means(measure)}, np.mean)
    return signed(value) + (bounds(interval) if interval else "")


def signed(share: float) -> str:
    """A change in per cent; a small one to a tenth."""
    return ("+" if share > 0 else "") + percent(share, 1 if abs(share) < 0.095 else 0)


def bounds(interval: Interval) -> str:
    """An interval of changes, in per cent."""
    return " [{}, {}]".format(*(signed(end).removesuffix(" %") for end in interval))
