"""Output to a terminal or a pipe: sentences without line breaks, tables that fit the width."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

UNBROKEN = 10_000  # columns assumed for a pipe, which has no width


def console() -> Console:
    """A console on standard output; lines to a pipe are not wrapped, unless ``COLUMNS`` is set."""
    out = Console(highlight=False)
    if out.is_terminal or os.environ.get("COLUMNS"):
        return out
    return Console(highlight=False, width=UNBROKEN)


def say(sentence: str, style: str | None = None) -> None:
    """Print a sentence without line breaks, so that commands and paths can be copied."""
    console().print(sentence, style=style, markup=False, soft_wrap=True)


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that fits the width, and below it the names of the columns left out."""
    out = console()
    table, left_out = fit(header, rows, out)
    say(title, "italic")
    out.print(table)
    if left_out:
        say(f"not shown at {out.width} columns: {', '.join(left_out)}", "dim")


def fit(
    header: Sequence[str], rows: Sequence[Sequence[str]], out: Console
) -> tuple[Table, list[str]]:
    """A table of the first columns that fit (at least two), and the names of the others."""
    for count in range(len(header), 1, -1):
        table = Table()
        for i, name in enumerate(header[:count]):
            is_text = i == 0 or all(row[i][:1].isalpha() for row in rows)
            table.add_column(name, justify="left" if is_text else "right")
        for row in rows:
            table.add_row(*map(Text, row[:count]))
        unbroken = out.measure(table, options=out.options.update(width=UNBROKEN))
        if unbroken.maximum <= out.width:
            break
    return table, list(header[count:])


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: ``1 policy``, ``3 policies``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def joined(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def duration(seconds: float) -> str:
    """A duration in hours and minutes, at least one minute."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def quoted(path: str | Path) -> str:
    """A path quoted for a shell."""
    return shlex.quote(str(path))
