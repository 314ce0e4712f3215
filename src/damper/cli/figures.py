"""``damper figures``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from damper.bench.figures import draw_bench_figures
from damper.report import theory_figures
from damper.report.method_pictures import draw_method_pictures


@dataclass
class Figures:
    """Draw the rule and its theory: the overview, the matched temporal gain, and what the smoothness score misses."""

    out: Path = Path("figures")
    """Where to write."""
    formats: tuple[str, ...] = ("svg", "png")
    """File formats."""
    methods: bool = False
    """Draw instead what each method's recorded policy does on Pendulum, beside the plain one's and DAMPER's."""
    results: Path = Path("results")
    """The store of records that these come from."""
    bench: Path | None = None
    """Draw instead what `damper bench` measured, from a folder with one of its `--out` folders per machine."""

    def run(self) -> None:
        """Draw all."""
        if self.bench is not None:
            paths = draw_bench_figures(self.bench, self.out, self.formats)
        elif self.methods:
            paths = draw_method_pictures(self.results, self.out, self.formats)
        else:
            paths = theory_figures.draw(self.out, self.formats)
        for path in paths:
            Console().print(str(path), highlight=False)
