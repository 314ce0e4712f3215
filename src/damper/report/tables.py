"""Tables as people read them: in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def terminal_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table for the terminal: first column left, the others right."""
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same in Markdown."""
    rule = ["---", *("---:" for _ in header[1:])]
    lines = ("| " + " | ".join(cell.replace("\n", " ") for cell in row) + " |" for row in (header, rule, *rows))
    return "\n".join(lines) + "\n"
