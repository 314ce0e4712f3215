"""Where DAMPER earns less than in the paper: which causes the records make unlikely, and which they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from damper.experiments.paper import Printed, printed
from damper.experiments.paper_experiments import ETAS
from damper.report.statistics.cells import Cell, Setup
from damper.report.statistics.estimates import Array, Interval, difference, squared_error, starts_error, welch_interval
from damper.report.statistics.numbers import number, percent, signed

FAR_BELOW = 0.1  # of the paper's return
FALLEN = 0.5  # of a seed's return at the end of its training
PAPER_SEEDS = 5
_CHANCES = {
    "Starts alone": ("starts",),
    "Starts, seeds and the paper's own error": ("starts", "seeds", "paper"),
}


class Distance(NamedTuple):
    """Of a mean return from the paper's: its errors by what makes them, each a variance and its degrees of freedom."""

    value: float
    errors: Mapping[str, tuple[float, float]]

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
    starts = starts_error(scores)
    if theirs is None or starts is None or len(seeds) < 2:
        return None
    errors = {"starts": (starts**2, scores.shape[1] - 1), "seeds": (squared_error(seeds), len(seeds) - 1)}
    if theirs.std is not None:
        errors["paper"] = (theirs.std**2 / PAPER_SEEDS, PAPER_SEEDS - 1)
    return Distance(cell.mean("return") - theirs.mean, errors)


def late_returns(cell: Cell) -> Array | None:
    """Each seed's training return in the last tenth of the steps; None where one is unknown."""
    late = [late_return(record.curve) for record in cell.records]
    return None if None in late else np.array(late, float)


def late_return(curve: Mapping[str, Sequence[float | None]]) -> float | None:
    """The mean training return in the last tenth of the steps; None if nothing ended there."""
    steps, returns = curve.get("step", ()), curve.get("return", ())
    known = [r for s, r in zip(steps, returns, strict=False) if r is not None and s and s > 0.9 * (steps[-1] or 0)]
    return sum(known) / len(known) if known else None


def below_paper(setup: Setup) -> Iterator[tuple[Cell, Printed]]:
    """DAMPER's cells whose mean return is more than a tenth below the paper's."""
    for cell in setup.cells:
        theirs = printed(cell.backbone, cell.method, cell.task, "return") if cell.published else None
        if cell.method == "damper" and theirs and cell.mean("return") < theirs.mean - FAR_BELOW * abs(theirs.mean):
            yield cell, theirs


def returns_section(main: Sequence[Setup]) -> str:
    """A line for each of these cells."""
    lines = [
        f"- **{cell.place}**: {' '.join(_causes(cell, theirs, setup, main[1:]))}\n"
        for setup in main[:1]
        for cell, theirs in below_paper(setup)
    ]
    if not lines:
        return "No mean return is that far below the paper's.\n"
    return (
        "Chance is unlikely where the 95 % interval of the distance, with the standard errors named, excludes zero "
        "([how](results/details.md#beside-the-papers-returns)); it is not corrected for having picked the lowest "
        f"cells.\n\n{''.join(lines)}"
    )


def _causes(cell: Cell, theirs: Printed, setup: Setup, protocols: Sequence[Setup]) -> Iterator[str]:
    """What was looked at, in sentences; of the seeds that have a return."""
    cell = cell.known("return")
    mean, seeds = cell.mean("return"), cell.means("return")

    def text(value: float) -> str:
        return number(value, "return", mean)

    yield f"{text(mean)}, the paper {text(theirs.mean)} ({signed((mean - theirs.mean) / abs(theirs.mean))})."
    yield f"*Seeds*: {'; '.join(map(text, seeds))}."
    if distance := distance_from_paper(cell):
        for words, names in _CHANCES.items():
            known = [name for name in names if name in distance.errors]
            sizes = ", ".join(f"±{text(distance.size(name))}" for name in known)
            chance = "unlikely" if distance.interval(*known).excludes_zero else "possible"
            yield f"*{words}*: {sizes}, {chance}."
    yield f"*Constant actions*: {len(cell.constant) or 'none'}{f' of {len(seeds)}' if cell.constant else ''}."
    late = late_returns(cell)
    if late is not None:
        gained = (float(late.mean()) - mean) / (theirs.mean - mean)
        share = f", which is {percent(gained)} of the way to the paper's" if gained > 0 else ", no more"
        yield f"*Last policies*: the last tenth of training, with exploration, earned {text(late.mean())}{share}."
        fallen = [
            f"seed {seed} (evaluated {text(own)}, trained {text(end)})"
            for seed, own, end in zip(cell.seeds, seeds, late, strict=True)
            if end - own > FALLEN * abs(end)
        ]
        if fallen:
            yield f"Far below its own training: {', '.join(fallen)}."
    others = [setup.find(cell.backbone, cell.task, "damper", eta=eta) for eta in ETAS if eta != cell.settings["eta"]]
    if swept := [other.mean("return") for other in others if other is not None]:
        told = " to ".join(map(text, dict.fromkeys((min(swept), max(swept)))))
        yield f"*Other η* ({len(swept)} on record): {told}."
    for protocol in protocols:
        yield f"*Settings*: {_under(cell, protocol)}."


def _under(cell: Cell, setup: Setup) -> str:
    """What another protocol makes of the same method."""
    twin = setup.find(cell.backbone, cell.task, cell.method)
    if twin is None:
        return f"not yet trained under `{setup.protocol}`"
    _, interval = difference(twin.means("return"), cell.means("return"))
    apart = interval is not None and interval.low > 0
    told = f"{number(twin.mean('return'), 'return', cell.mean('return'))} under `{setup.protocol}`"
    return told + (", more beyond the noise: the settings may be a cause" if apart else ", not more beyond the noise")
