"""Options of ``python -m paper figures``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from damper.cli.options import default


@dataclass
class Figures:
    """Draw the rule and its theory: overview, matched temporal gain, what the score sm misses."""

    out: Path = Path("figures")
    """Where to write."""
    formats: tuple[str, ...] = ("svg", "png")
    """File formats."""
    methods: bool = False
    """Draw instead what each method's recorded policy does on Pendulum."""
    results: Path = Path("results")
    """The store of records for --methods."""
    bench: Annotated[Path | None, default("the theory's figures")] = None
    """Draw instead what `bench` measured, from a folder with one of its --out per machine."""
