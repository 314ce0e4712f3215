"""DAMPER beside plain on every task and backbone, straight from the records: in short, and with all numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from damper.experiments.paper_experiments import BACKBONES, ONE_ETA
from damper.report.statistics.cells import MEASURES, Cell, Setup, main_setups
from damper.report.statistics.estimates import Interval, relative_change
from damper.report.statistics.numbers import number, signed
from damper.report.tables.markup import markdown_table

UNDECIDED = "undecided"
NEGLIGIBLE_CHANGE = 0.1  # a change whose whole interval is smaller is none to speak of


def headline(found: Sequence[Setup]) -> str:
    """The README's table, of the fullest setup that keeps to its protocol: what DAMPER changes, a line per task."""
    for setup in main_setups(found):
        rows = [
            [name, _means(plain, ours, "mean_change"), _means(plain, ours, "return"), _message(plain, ours)]
            for name, plain, ours in _both(setup)
        ]
        if rows:
            header = ["plain → DAMPER", "action change per step", "return", "so far"]
            return markdown_table(header, rows)
    return "No records yet.\n"


def _both(setup: Setup) -> Iterator[tuple[str, Cell, Cell]]:
    """Every task and backbone that has plain and DAMPER, with its name."""
    for backbone in BACKBONES:
        for task in setup.tasks(backbone):
            plain, ours = (setup.find(backbone, task, method) for method in ("plain", "damper"))
            if plain is not None and ours is not None:
                yield f"{task}, {backbone.upper()}", plain, ours


def _message(plain: Cell, ours: Cell) -> str:
    """What the intervals say, and no more."""
    smooth, (word, most) = _said(plain, ours, "mean_change")[0], _said(plain, ours, "return")
    smooth = {"lower": "smoother", "higher": "less smooth"}.get(smooth, f"smoothness {smooth}")
    bound = f"{np.ceil(100 * most):.0f} %" if most < NEGLIGIBLE_CHANGE else ""
    if not bound:
        return f"{smooth}, return {word}"
    return f"{smooth}, return " + (f"within {bound}" if word == UNDECIDED else f"{word} by {bound} at most")


def _said(plain: Cell, ours: Cell, measure: str) -> tuple[str, float]:
    """The sign of a change as far as its interval tells, and the largest size that the interval allows."""
    _, interval = _change(plain, ours, measure)
    low, high = interval or (-np.inf, np.inf)
    return "lower" if high < 0 else "higher" if low > 0 else UNDECIDED, max(-low, high)


def takeaway(setup: Setup) -> str:
    """The result of the table below it, in a sentence: how often the interval of a change tells its sign."""
    pairs = [(plain, ours) for _, plain, ours in _both(setup)]
    if not pairs:
        return ""
    parts = []
    for measure in ("mean_change", "return"):
        words = Counter(_said(*pair, measure)[0] for pair in pairs)
        counts = (f"{word} in {words[word]}" for word in ("lower", "higher", UNDECIDED) if words[word])
        parts.append(f"{MEASURES[measure]} is {' and '.join(counts)}")
    return f"Of {len(pairs)} pairs of task and backbone, DAMPER's {parts[0]}; its {parts[1]}."


def comparison_table(setup: Setup, measures: Sequence[str]) -> str:
    """All numbers: a row for every task and backbone that has both; empty if none has."""
    header = ["task", "seeds", *(f"{MEASURES[name]}: plain → DAMPER" for name in measures)]
    rows = []
    for name, plain, ours in _both(setup):
        one = setup.find(ours.backbone, ours.task, "damper", eta=ONE_ETA)
        words = "the same" if one is ours else _changes(one, plain, measures)
        cells = [_arrow(plain, ours, measure) for measure in measures]
        rows.append([name, _seeds(plain, ours), *cells, f"{ours.settings['eta']:g}", words])
    return markdown_table([*header, "paper's η", f"with η = {ONE_ETA:g}"], rows) if rows else ""


def _seeds(*cells: Cell) -> str:
    counts = {len(cell.seeds) for cell in cells}
    return "/".join(str(count) for count in sorted(counts))


def _arrow(plain: Cell, ours: Cell, measure: str) -> str:
    """Both means and the change, with the medians, since one seed can carry a mean."""
    a, b = plain.summary(measure), ours.summary(measure)
    if a is None or b is None:
        return "–"
    medians = f"{number(a.median, measure)} → {number(b.median, measure)}"
    return f"{_means(plain, ours, measure)}<br><small>medians {medians}</small>"


def _means(plain: Cell, ours: Cell, measure: str) -> str:
    """Both means and the change."""
    means = (number(cell.mean(measure), measure) for cell in (plain, ours))
    return "{} → **{}**, {}".format(*means, change_text(plain, ours, measure))


def _changes(one: Cell | None, plain: Cell, measures: Sequence[str]) -> str:
    if one is None:
        return "not yet trained"
    return ", ".join(f"{MEASURES[measure]} {change_text(plain, one, measure)}" for measure in measures)


def change_text(plain: Cell, ours: Cell, measure: str) -> str:
    """The change of the mean in per cent of plain's, with its interval."""
    value, interval = _change(plain, ours, measure)
    bounds = " [{}, {}]".format(*(signed(end).removesuffix(" %") for end in interval)) if interval else ""
    return signed(value) + bounds


def _change(plain: Cell, ours: Cell, measure: str) -> tuple[float, Interval | None]:
    return relative_change({"": ours.means(measure)}, {"": plain.means(measure)}, np.mean)
