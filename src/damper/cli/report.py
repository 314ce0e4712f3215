"""``damper report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from damper.experiments.store import Store
from damper.report.build import write_report


@dataclass
class Report:
    """Tables, figures and one self-contained page from the records in the results store."""

    results: Path = Path("results")
    """The store of records."""
    out: Path = Path("docs/results")
    """Where to write."""
    formats: tuple[str, ...] = ("svg", "png", "pdf")
    """Formats of the figures; none draws none."""
    readme: Path | None = None
    """A Markdown file whose marked place gets the headline table."""
    merge: tuple[Path, ...] = ()
    """First copy into the store what these other stores have and it lacks."""

    def run(self) -> None:
        """Merge, write, say where."""
        console = Console()
        for other in self.merge:
            merged = Store(self.results).merge(Store(other))
            console.print(f"{other}: {merged.added} records added, {merged.same} were there", highlight=False)
            for name in merged.different:
                console.print(f"  {name} differs there; this store's was kept", style="yellow", highlight=False)
        paths = write_report(self.results, self.out, self.formats, self.readme)
        console.print(f"{len(paths)} files in {self.out}; open {paths[0]}", highlight=False)
