"""The README's table: DAMPER beside plain, straight from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from damper.engine.files import write_bytes
from damper.errors import DamperError
from damper.report.cells import Cell, Setup
from damper.report.result_tables import number
from damper.report.tables import markdown_table

BEGIN, END = "<!-- headline: written by damper report -->", "<!-- headline ends -->"
MEASURES = {"return": "return", "smoothness": "sm", "mean_change": "mean|Δa|"}


def headline(found: Sequence[Setup]) -> str:
    """One table per setup that keeps to its protocol: plain → DAMPER with 95 % intervals over seeds."""
    parts = [part for setup in found if not setup.deviations and (part := _table(setup))]
    return "\n".join(parts) if parts else "No records yet.\n"


def _table(setup: Setup) -> str:
    header = ["task", "seeds", *(f"{words}: plain → DAMPER" for words in MEASURES.values())]
    rows = []
    for backbone in ("td3", "sac"):
        for task in setup.tasks(backbone):
            plain, ours = (setup.find(backbone, task, method) for method in ("plain", "damper"))
            if plain and ours:
                cells = [f"{_value(plain, name)} → **{_value(ours, name)}**" for name in MEASURES]
                rows.append([f"{task}, {backbone.upper()}", str(len(ours.seeds)), *cells])
    return f"Settings `{setup.title}`:\n\n{markdown_table(header, rows)}" if rows else ""


def _value(cell: Cell, measure: str) -> str:
    summary = cell.summary(measure)
    if summary is None:
        return "–"
    if summary.interval is None:
        return number(summary.mean, measure)
    low, high = (number(bound, measure, like=summary.mean) for bound in summary.interval)
    return f"{number(summary.mean, measure)} [{low}, {high}]"


def insert(path: Path, found: Sequence[Setup]) -> None:
    """Put the table between the markers of a Markdown file."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise DamperError(f"{path} must hold the lines {BEGIN!r} and {END!r} once each, where the table goes.")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    write_bytes(path, f"{before}{BEGIN}\n\n{headline(found)}\n{END}{after}".encode())
