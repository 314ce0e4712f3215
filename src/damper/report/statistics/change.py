"""The change of a mean relative to plain's: its size, its interval, and the sign as far as that tells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from damper.report.statistics.cells import NEVER_NEGATIVE, SMOOTHNESS, Cell
from damper.report.statistics.estimates import Array, Interval, ratio_change, relative_change
from damper.report.statistics.numbers import bracketed, signed

LOWER, HIGHER, UNDECIDED, NOT_COUNTED = "lower", "higher", "undecided", "not counted"


class Change(NamedTuple):
    """In shares of plain's mean; ``notes`` in place of the smoothness that one constant action makes perfect."""

    value: float
    interval: Interval | None
    notes: str = ""

    @property
    def sign(self) -> str:
        """As far as the interval tells."""
        if self.notes:
            return NOT_COUNTED
        low, high = self.interval or (-np.inf, np.inf)
        return LOWER if high < 0 else HIGHER if low > 0 else UNDECIDED

    def __str__(self) -> str:
        """In per cent, with its interval."""
        return self.notes or signed(self.value) + (
            f" {bracketed(*self.interval)}" if self.interval else ""
        )


def change_of_mean(plain: Array, ours: Array, measure: str) -> Change:
    """Of the seeds' values, by the interval that suits the measure."""
    if measure in NEVER_NEGATIVE:
        return Change(*ratio_change(ours, plain))
    return Change(*relative_change({"": ours}, {"": plain}, np.mean))


def change(plain: Cell, ours: Cell, measure: str) -> Change:
    """Of two cells; smoothness is not counted where most agents of a side hold one action."""
    if measure in SMOOTHNESS and (plain.mostly_constant or ours.mostly_constant):
        return Change(np.nan, None, "; ".join(constant_notes(plain, ours)))
    return change_of_mean(plain.means(measure), ours.means(measure), measure)


def constant_notes(plain: Cell, ours: Cell) -> list[str]:
    """How many agents of either side hold one action."""
    notes = {"": ours.constant_note, "plain: ": plain.constant_note}
    return [side + note for side, note in notes.items() if note]
