"""Options of ``damper report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Report:
    """Tables, figures and one self-contained page from the records in the results store."""

    results: Path = Path("results")
    """The store of records."""
    out: Path = Path("docs/results")
    """Where to write."""
    formats: tuple[str, ...] = ("svg", "png", "pdf")
    """Formats of the figures; none draws none."""
    pages: tuple[Path, ...] | None = None
    """Markdown files whose marked places are filled; of results/ to docs/results, README.md and docs/results.md."""
    merge: tuple[Path, ...] = ()
    """First copy into the store what these other stores have and it lacks."""
