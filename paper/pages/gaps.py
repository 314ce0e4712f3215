"""The same method under two settings: both means, and the difference with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from damper.terminal import counted
from paper.statistics.cells import COMPARED, MEASURES, Cell, Setup
from paper.statistics.estimates import difference, median
from paper.statistics.numbers import number, with_bounds


class Gap(NamedTuple):
    """Two cells' means and medians of one measure, the difference of the means, whether its interval excludes zero."""

    name: str
    measure: str
    one: Cell
    other: Cell
    difference: str
    apart: bool

    @property
    def row(self) -> list[str]:
        """For a table, in bold where the interval excludes zero."""
        cells = (_with_median(cell, self.measure) for cell in (self.one, self.other))
        told = f"**{self.difference}**" if self.apart else self.difference
        return [f"{self.name}, {MEASURES[self.measure]}", *cells, told]


def gaps_between(one: Cell, other: Cell, name: str) -> Iterator[Gap]:
    """A gap per measure."""
    for measure in COMPARED:
        if not (len(one.means(measure)) and len(other.means(measure))):
            continue
        gap, interval = difference(one.means(measure), other.means(measure))
        form = partial(number, measure=measure, like=one.mean(measure))
        text = with_bounds(gap, interval, form) if interval else form(gap)
        apart = interval is not None and interval.excludes_zero
        yield Gap(name, measure, one, other, text, apart)


def protocol_gaps(main: Sequence[Setup]) -> list[Gap]:
    """What the two published settings make of the same method; none where only one has records."""
    if len(main) < 2:
        return []
    one, other = main[:2]
    found: list[Gap] = []
    for cell in plain_and_damper(one):
        twin = other.find(cell.backbone, cell.task, cell.method)
        found += gaps_between(cell, twin, cell.name) if twin else []
    return found


def tell_apart(gaps: Sequence[Gap]) -> str:
    """The result of a table of differences, in a sentence."""
    apart = sum(gap.apart for gap in gaps)
    rows = counted(len(gaps), "row")
    where = f"{apart} of {rows}, in bold" if apart else f"none of {rows}"
    return (
        f"The 95 % interval of the difference excludes zero in {where}; by chance it would in 1 "
        "of 20."
    )


def plain_and_damper(setup: Setup) -> list[Cell]:
    """The cells that the pages comment on: both methods at their published settings."""
    return [cell for cell in setup.published if cell.method in ("plain", "damper")]


def _with_median(cell: Cell, measure: str) -> str:
    """A cell's mean, and below it the median and, where agents hold one action, how many."""
    mean, middle = cell.mean(measure), median(cell.means(measure))
    below = (f"median {number(middle, measure, mean)}", cell.constant_note)
    return number(mean, measure) + "".join(f"<br><small>{line}</small>" for line in below if line)
