"""Tables as Markdown, and their cells."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

NUMBER = re.compile(r"(\*\*|<small>|paper )*[−+±]?\d")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, columns of numbers right and of words left."""
    rule = ["---"] * len(header)
    for i in range(1, len(header)):
        if _are_numbers([row[i] for row in rows]):
            rule[i] = "---:"
    text = ""
    for row in (header, rule, *rows):
        # A bar within a cell, as in |Δa|, would end the cell.
        cells = [cell.replace("\n", " ").replace("|", "\\|") for cell in row]
        text += f"| {' | '.join(cells)} |\n"
    return text


def _are_numbers(cells: Sequence[str]) -> bool:
    """Whether more than half of the cells that say something begin with a number."""
    filled = [cell for cell in cells if cell.strip("– ")]
    return 2 * sum(bool(NUMBER.match(cell)) for cell in filled) > len(filled)


def spread_cell(value: dict[str, float], form: str) -> str:
    """The mean, and below it the spread over seeds and the pooled one; "–" for NaN."""
    numbers = [value[name] for name in ("mean", "over_seeds", "pooled")]
    cells = ["–" if math.isnan(number) else form.format(number) for number in numbers]
    return "{}\n({}; {})".format(*cells)


def constant_mark(members: Sequence[int], constant: Collection[int]) -> str:
    """A line that counts a group's agents that hold one action; empty if none does."""
    still = len(set(members) & set(constant))
    return f"\n(constant action, {still} of {len(members)})" if still else ""
