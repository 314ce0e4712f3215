"""The change of a mean relative to plain's, with its interval."""

from __future__ import annotations

import numpy as np

from damper.intervals import Change, change_of_mean
from damper.metrics import SMOOTHNESS
from paper.statistics.cells import Cell


def change(plain: Cell, ours: Cell, measure: str) -> Change:
    """Of two cells; smoothness is not counted where most agents of a side hold one action."""
    if measure in SMOOTHNESS and (plain.mostly_constant or ours.mostly_constant):
        return Change(np.nan, None, "; ".join(constant_notes(plain, ours)))
    return change_of_mean(plain.means(measure), ours.means(measure), measure)


def constant_notes(plain: Cell, ours: Cell) -> list[str]:
    """How many agents of either side hold one action."""
    notes = {"": ours.constant_note, "plain: ": plain.constant_note}
    return [side + note for side, note in notes.items() if note]
