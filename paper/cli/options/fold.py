"""Options of ``python -m paper fold``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Fold:
    """Move what several writers left in the spool of a store into its JSONL files."""

    results: Path = Path("results")
    """The store of records."""
