"""``damper report``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from damper.cli.options.report import Report
from damper.engine.files import check_folder
from damper.errors import DamperError
from damper.experiments.store import Store
from damper.report.build import PAGES, write_report
from damper.report.marked import has_place


def run(options: Report) -> None:
    """Merge, write, say where."""
    check_folder("out", options.out)
    for page in options.pages or ():
        if not page.is_file():
            raise DamperError(f"pages must be Markdown files, but {page} is none: give one that exists.")
    pages = _own_pages(options) if options.pages is None else options.pages
    console = Console()
    for other in options.merge:
        merged = Store(options.results).merge(Store(other))
        console.print(f"{other}: {merged.added} records added, {merged.same} were there", highlight=False)
        for name in merged.different:
            console.print(f"  {name} differs there; this store's was kept", style="yellow", highlight=False)
    paths = write_report(options.results, options.out, options.formats, pages)
    console.print(f"{len(paths)} files in {options.out}; open {paths[0]}", highlight=False)


def _own_pages(options: Report) -> list[Path]:
    """The project's own pages, which tell of its own results and of no others."""
    own = (options.results, options.out) == (Report.results, Report.out)
    return [page for page in PAGES if own and has_place(page)]
