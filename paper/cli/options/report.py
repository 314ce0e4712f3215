"""Options of ``python -m paper report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from damper.cli.options import LEFT_OUT, default


@dataclass
class Report:
    """Tables, figures and one self-contained page from the records in the results store."""

    results: Path = Path("results")
    """The store of records."""
    out: Annotated[
        Path | None, default("docs/results for results/, otherwise report/ in the store")
    ] = None
    """Where to write."""
    formats: tuple[str, ...] = ("svg", "png", "pdf")
    """Formats of the figures; with none given, no figures are drawn."""
    pages: Annotated[
        tuple[Path, ...] | None, default("for results/ README.md and pages of docs/, else none")
    ] = None
    """Markdown files whose marked sections are filled in."""
    merge: Annotated[tuple[Path, ...], default("none")] = LEFT_OUT
    """Other stores, whose records are first copied into this one."""
