"""Tables behind the results page: gaps between settings, distances from the paper, seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from damper.intervals import Array, Interval, squared_error
from damper.provenance import digest
from damper.tables import markdown_table
from paper.experiments.catalogue import ETAS
from paper.experiments.printed import Printed, printed
from paper.statistics.cells import COMPARED, MEASURES, Cell, Setup
from paper.statistics.estimates import (
    difference,
    initial_state_error,
    mean_interval,
    median,
    welch_interval,
)
from paper.statistics.numbers import number, with_bounds, with_interval
from paper.tables.pairs import swept_etas
from paper.tables.result_tables import code_versions

FAR_BELOW = 0.1  # of the paper's return
PAPER_SEEDS = 5


class Distance(NamedTuple):
    """A mean return less the paper's, and its errors: variances with degrees of freedom."""

    mean: float
    value: float
    errors: Mapping[str, tuple[float, float]]

    def __str__(self) -> str:
        """With its interval, in bold where that excludes zero."""
        text = with_bounds(self.value, self.interval(), self.number)
        return f"**{text}**" if self.interval().excludes_zero else text

    def number(self, value: float) -> str:
        """A return, with the digits of the mean."""
        return number(value, "return", self.mean)

    def size(self, name: str) -> float:
        """One standard error."""
        return float(self.errors[name][0] ** 0.5)

    def interval(self, *names: str) -> Interval:
        """With some of the errors, or with all."""
        return welch_interval(self.value, [self.errors[name] for name in names or self.errors])


def distance_from_paper(cell: Cell) -> Distance | None:
    """None where the paper prints no return, or one start or one seed tells nothing of others."""
    theirs = printed(cell.backbone, cell.method, cell.task, "return")
    scores, seeds = cell.scores("return"), cell.means("return")
    starts = initial_state_error(scores)
    if theirs is None or starts is None or len(seeds) < 2:
        return None
    errors = {
        "starts": (starts**2, scores.shape[1] - 1),
        "seeds": (squared_error(seeds), len(seeds) - 1),
        "paper": (theirs.std**2 / PAPER_SEEDS, PAPER_SEEDS - 1),
    }
    return Distance(cell.mean("return"), cell.mean("return") - theirs.mean, errors)


def late_returns(cell: Cell) -> Array | None:
    """Each seed's training return in the last tenth of the steps; None where one is unknown."""
    late = [late_return(record.curve) for record in cell.records]
    return None if None in late else np.array(late, float)


def late_return(curve: Mapping[str, Sequence[float | None]]) -> float | None:
    """The mean training return in the last tenth of the steps; None if nothing ended there."""
    steps, returns = curve.get("step", ()), curve.get("return", ())
    start = 0.9 * (steps[-1] or 0) if steps else 0
    pairs = zip(steps, returns, strict=False)
    late = [value for step, value in pairs if value is not None and step and step > start]
    return sum(late) / len(late) if late else None


def below_paper(setup: Setup) -> Iterator[tuple[Cell, Printed]]:
    """DAMPER's cells whose mean return is more than a tenth below the paper's."""
    for cell, theirs in beside_paper(setup):
        if cell.mean("return") < theirs.mean - FAR_BELOW * abs(theirs.mean):
            yield cell, theirs


def beside_paper(setup: Setup) -> Iterator[tuple[Cell, Printed]]:
    """DAMPER's cells that have a return here and in the paper."""
    for cell in setup.published:
        theirs = printed(cell.backbone, cell.method, cell.task, "return")
        if cell.method == "damper" and theirs and len(cell.means("return")):
            yield cell, theirs


class Gap(NamedTuple):
    """The difference of two cells' means of one measure, as a row in bold if it is ``apart``."""

    name: str
    measure: str
    row: list[str]
    apart: bool


def gaps_between(cell: Cell, other: Cell, name: str) -> Iterator[Gap]:
    """A gap per measure."""
    for measure in COMPARED:
        if not (len(cell.means(measure)) and len(other.means(measure))):
            continue
        gap, interval = difference(cell.means(measure), other.means(measure))
        form = partial(number, measure=measure, like=cell.mean(measure))
        text = with_bounds(gap, interval, form) if interval else form(gap)
        apart = interval is not None and interval.excludes_zero
        means = [
            number(c.mean(measure), measure) + _below_mean(c, measure, c.mean(measure))
            for c in (cell, other)
        ]
        row = [f"{name}, {MEASURES[measure]}", *means, f"**{text}**" if apart else text]
        yield Gap(name, measure, row, apart)


def protocol_gaps(main: Sequence[Setup]) -> list[Gap]:
    """What the two published settings make of the same method; none where only one has records."""
    if len(main) < 2:
        return []
    first, other = main[:2]
    gaps: list[Gap] = []
    for cell in plain_and_damper(first):
        twin = other.find(cell.backbone, cell.task, cell.method)
        gaps += gaps_between(cell, twin, cell.name) if twin else []
    return gaps


def plain_and_damper(setup: Setup) -> list[Cell]:
    """The cells that the pages comment on: both methods at their published settings."""
    return [cell for cell in setup.published if cell.method in ("plain", "damper")]


def _below_mean(cell: Cell, measure: str, mean: float) -> str:
    """A cell's median and, where agents hold one action, how many, as lines below the mean."""
    below = (f"median {number(median(cell.means(measure)), measure, mean)}", cell.constant_note)
    return "".join(f"<br><small>{line}</small>" for line in below if line)


def gaps_table(gaps: Sequence[Gap], left: str, right: str) -> str:
    """Differences between two kinds of cells, in bold where the interval excludes zero."""
    return markdown_table(["cell", left, right, "difference"], [gap.row for gap in gaps])


def protocols_table(main: Sequence[Setup]) -> str:
    """Every comparison of the two published settings."""
    names = [f"`{setup.protocol}`" for setup in main[:2]]
    return gaps_table(protocol_gaps(main), *names) if len(names) > 1 else "No records yet.\n"


def sweep_table(main: Sequence[Setup]) -> str:
    """Means with their intervals and medians over η."""
    rows = []
    for setup in main:
        for cells in swept_etas(setup):
            for measure in COMPARED:
                place = f"`{setup.protocol}` {cells[0].place}, {MEASURES[measure]}"
                rows.append([place, *(_with_interval(cell, measure) for cell in cells)])
    return markdown_table(["cell", *(f"η = {eta:g}" for eta in ETAS)], rows)


def _with_interval(cell: Cell, measure: str) -> str:
    mean, interval = cell.mean(measure), mean_interval(cell.means(measure))
    return with_interval(mean, interval, measure) + _below_mean(cell, measure, mean)


def precision_gaps(every_setup: Sequence[Setup]) -> list[Gap]:
    """Setups that differ in TF32 alone."""
    gaps: list[Gap] = []
    for a, b in product(every_setup, every_setup):
        first, other = (
            (s.protocol, s.deviations, s.backend, s.episodes, {**s.numerics, "tf32": True})
            for s in (a, b)
        )
        same_physics = {**a.physics, **b.physics} == {**b.physics, **a.physics}
        if first != other or not same_physics or a.numerics["tf32"] <= b.numerics["tf32"]:
            continue
        for cell in b.published:
            twin = a.find(cell.backbone, cell.task, cell.method)
            gaps += gaps_between(twin, cell, f"`{a.protocol}` {cell.name}") if twin else []
    return gaps


def unit_gaps(every_setup: Sequence[Setup]) -> list[Gap]:
    """Cells that differ in the units of the temporal loss alone."""
    gaps: list[Gap] = []
    for setup in every_setup:
        twins = {(c.place, c.method, digest(c.settings)): c for c in setup.cells}
        for cell in setup.cells:
            others = {name: value for name, value in cell.settings.items() if name != "units"}
            twin = twins.get((cell.place, cell.method, digest(others)))
            if twin and cell.settings.get("units") == "environment":
                name = f"`{setup.protocol}` {cell.place} {twin.label}"
                gaps += gaps_between(cell, twin, name)
    return gaps


def returns_table(main: Sequence[Setup]) -> str:
    """DAMPER's cells far below the paper's: the distance, and what else could be the cause."""
    below = below_paper(main[0]) if main else ()
    rows = [_row(cell.known("return"), theirs, main) for cell, theirs in below]
    header = ["cell", "return", "paper", "difference", "each seed", "end of training", "other η"]
    return markdown_table([*header, *(f"`{setup.protocol}`" for setup in main[1:])], rows)


def _row(cell: Cell, theirs: Printed, main: Sequence[Setup]) -> list[str]:
    distance, late = distance_from_paper(cell), late_returns(cell)
    text = partial(number, measure="return", like=cell.mean("return"))
    etas = main[0].etas(cell.task, cell.backbone)
    etas.pop(cell.settings["eta"], None)
    swept = [other.mean("return") for other in etas.values() if len(other.means("return"))]
    return [
        "<br>".join(filter(None, (cell.place, cell.constant_note))),
        text(cell.mean("return")),
        text(theirs.mean),
        str(distance or "–"),
        "; ".join(map(text, cell.means("return"))),
        "–" if late is None else text(float(late.mean())),
        " to ".join(map(text, dict.fromkeys((min(swept), max(swept))))) if swept else "–",
        *(_under(cell, setup) for setup in main[1:]),
    ]


def _under(cell: Cell, setup: Setup) -> str:
    """What another protocol makes of the same method."""
    twin = setup.find(cell.backbone, cell.task, cell.method)
    if twin is None or not len(twin.means("return")):
        return "–"
    _, interval = difference(twin.means("return"), cell.means("return"))
    text = number(twin.mean("return"), "return", cell.mean("return"))
    return f"**{text}**" if interval is not None and interval.low > 0 else text


def distances_table(main: Sequence[Setup]) -> str:
    """Each mean return less the paper's, with the three errors of that difference."""
    rows = []
    for setup in main:
        for cell in plain_and_damper(setup):
            distance = distance_from_paper(cell)
            if distance is None:
                continue
            theirs = distance.mean - distance.value
            means = [distance.number(value) for value in (distance.mean, theirs)]
            sizes = [f"±{distance.number(distance.size(name))}" for name in distance.errors]
            rows.append([f"`{setup.protocol}` {cell.name}", *means, str(distance), *sizes])
    errors = ["error: starts", "error: seeds", "error: paper"]
    return markdown_table(["cell", "return", "paper", "difference", *errors], rows)


def late_table(main: Sequence[Setup]) -> str:
    """The last policies' returns beside those at the end of training."""
    rows = []
    for setup in main:
        for whole in plain_and_damper(setup):
            cell = whole.known("return")
            trained = late_returns(cell) if cell.records else None
            if trained is None:
                continue
            evaluated = cell.means("return")
            text = partial(number, measure="return", like=float(np.abs(evaluated).max()))
            entries = [
                f"{text(float(values.mean()))} ({'; '.join(map(text, values))})"
                for values in (evaluated, trained)
            ]
            rows.append([f"`{setup.protocol}` {cell.name}", *entries])
    header = ["cell", "evaluated: mean (each seed)", "end of training: mean (each seed)"]
    return markdown_table(header, rows)


def code_list(main: Sequence[Setup]) -> str:
    """The code that made each cell."""
    lines = []
    for setup in main:
        for place in dict.fromkeys(cell.place for cell in setup.cells):
            cells = [cell for cell in setup.cells if cell.place == place]
            lines.append(f"- `{setup.protocol}`, {place}: {code_versions(cells)}")
    return "\n".join(lines) + "\n"
