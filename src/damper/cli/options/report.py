"""Options of ``damper report``."""

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
    out: Annotated[Path | None, default("docs/results for results/, otherwise report/ in the store")] = None
    """Where to write."""
    formats: tuple[str, ...] = ("svg", "png", "pdf")
    """Formats of the figures; none draws none."""
    pages: Annotated[tuple[Path, ...] | None, default("of results/, README.md and pages of docs/")] = None
    """Markdown files whose marked places are filled."""
    merge: Annotated[tuple[Path, ...], default("none")] = LEFT_OUT
    """First copy into the store what these other stores have and it lacks."""
