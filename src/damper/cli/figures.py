"""``damper figures``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from damper.report import theory_figures


@dataclass
class Figures:
    """Draw the rule and its theory: the overview, the matched temporal gain, and what the smoothness score misses."""

    out: Path = Path("figures")
    """Where to write."""
    formats: tuple[str, ...] = ("svg", "png")
    """File formats."""

    def run(self) -> None:
        """Draw all."""
        for path in theory_figures.draw(self.out, self.formats):
            Console().print(str(path), highlight=False)
