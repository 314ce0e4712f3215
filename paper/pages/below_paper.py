"""Where DAMPER earns less than in the paper, and what the records say about possible causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from damper.intervals import Array, Interval, squared_error
from damper.tables import markdown_table
from paper.experiments.printed import Printed, printed
from paper.statistics.cells import Cell, Setup
from paper.statistics.estimates import difference, initial_state_error, welch_interval
from paper.statistics.numbers import number, with_bounds

FAR_BELOW = 0.1  # of the paper's return
PAPER_SEEDS = 5


class Distance(NamedTuple):
    """Of a mean return from the paper's, with its errors by what makes them: a variance and its degrees of freedom."""

    mean: float
    value: float
    errors: Mapping[str, tuple[float, float]]

    def __str__(self) -> str:
        """With its interval, in bold where that excludes zero."""
        told = with_bounds(self.value, self.interval(), self.number)
        return f"**{told}**" if self.interval().excludes_zero else told

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
    known = [
        r
        for s, r in zip(steps, returns, strict=False)
        if r is not None and s and s > 0.9 * (steps[-1] or 0)
    ]
    return sum(known) / len(known) if known else None


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


def returns_section(main: Sequence[Setup]) -> str:
    """A row for each of these cells: the distance with its interval, and what else could be the cause."""
    rows = (
        [_row(cell.known("return"), theirs, main) for cell, theirs in below_paper(main[0])]
        if main
        else []
    )
    if not rows:
        return "No mean return is that far below the paper's.\n"
    others = [f"`{setup.protocol}`" for setup in main[1:]]
    header = [
        "cell",
        "return",
        "paper",
        "difference",
        "each seed",
        "end of training",
        "other η",
        *others,
    ]
    protocols = (
        f" *{', '.join(others)}*: that protocol's return, bold where higher beyond the noise."
        if others
        else ""
    )
    return (
        "*Difference*: from the paper's mean, with its 95 % interval "
        "([how](results/details.md#returns-against-the-papers)), bold where that excludes zero; "
        "not corrected for "
        "having picked the lowest cells. *End of training*: mean training return in the last tenth "
        "of the steps, with "
        f"exploration. *Other η*: range of the mean returns on record with another η.{protocols}\n\n"
        + markdown_table(header, rows)
    )


def _row(cell: Cell, theirs: Printed, main: Sequence[Setup]) -> list[str]:
    distance, late = distance_from_paper(cell), late_returns(cell)
    text = partial(number, measure="return", like=cell.mean("return"))
    etas = main[0].etas(cell.task, cell.backbone).items()
    swept = [
        own.mean("return")
        for eta, own in etas
        if eta != cell.settings["eta"] and len(own.means("return"))
    ]
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
    told = number(twin.mean("return"), "return", cell.mean("return"))
    return f"**{told}**" if interval is not None and interval.low > 0 else told
