"""Tables as Markdown, and their cells."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

NUMBER = re.compile(r"(\*\*|<small>|paper )*[−+±]?\d")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, columns of numbers right and of words left.

    A bar within a cell, as in |Δa|, would end the cell.
    """
    rule = [
        "---:" if i and _are_numbers([row[i] for row in rows]) else "---"
        for i in range(len(header))
    ]
    cells = (
        [cell.replace("\n", " ").replace("|", "\\|") for cell in row]
        for row in (header, rule, *rows)
    )
    lines = ("| " + " | ".join(row) + " |" for row in cells)
    return "\n".join(lines) + "\n"


def _are_numbers(cells: Sequence[str]) -> bool:
    """Whether more than half of the cells that say something begin with a number."""
    said = [cell for cell in cells if cell.strip("– ")]
    return 2 * sum(bool(NUMBER.match(cell)) for cell in said) > len(said)


def spread_cell(value: dict[str, float], form: str) -> str:
    """The mean, and below it the spread over seeds and the pooled spread.

    "–" for NaN, the spread of one value.
    """
    numbers = (value[name] for name in ("mean", "over_seeds", "pooled"))
    mean, over_seeds, pooled = (
        "–" if math.isnan(number) else form.format(number) for number in numbers
    )
    return f"{mean}\n({over_seeds}; {pooled})"


def constant_mark(members: Sequence[int], constant: Collection[int]) -> str:
    """A line that counts a group's agents that hold one action, whose smoothness says little.

    Empty if none does.
    """
    still = len(set(members) & set(constant))
    return f"\n(constant action, {still} of {len(members)})" if still else ""
