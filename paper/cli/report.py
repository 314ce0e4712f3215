"""``python -m paper report``."""

from __future__ import annotations

from pathlib import Path

from damper.errors import DamperError
from damper.files import check_folder
from damper.intervals import import_scipy
from damper.plots.style import import_matplotlib
from damper.terminal import counted, quoted, say
from paper.cli.options.report import Report
from paper.experiments.store import Store
from paper.experiments.timings import read_timings
from paper.pages.build import PAGES, write_report
from paper.pages.marked import has_place
from paper.tables.ppo import read_ppo

OWN_OUT = Path("docs/results")  # for the project's own records


def run(options: Report) -> None:
    """Merge stores, write the report and print where it is."""
    is_default = options.results == Report.results
    out = options.out or (OWN_OUT if is_default else options.results / "report")
    check_folder("out", out)
    import_scipy("special")
    if options.formats:
        import_matplotlib("report")
    for page in options.pages or ():
        if not page.is_file():
            raise DamperError(
                f"pages must be Markdown files, but {page} is not a file: give one that exists."
            )
    pages = _own_pages(options.results, out) if options.pages is None else options.pages
    for other in options.merge:
        merged = Store(options.results).merge(Store(other))
        added = f"{counted(merged.added, 'record')} added"
        say(f"{quoted(other)}: {added}, {merged.same:,} already there")
        for name in merged.different:
            say(f"  {name} differs there; this store's record was kept", "yellow")
    if not Store(options.results).folder.exists():
        raise DamperError(
            f"results must be a folder of records, but {quoted(options.results)} does not exist: "
            "run this in the folder that contains it, name another with --results, or make records "
            "with python -m paper reproduce."
        )
    has_records = (any(read(options.results)) for read in (Store, read_timings, read_ppo))
    if any(path != out for path in options.results.iterdir()) and not any(has_records):
        raise DamperError(
            f"results must hold records, but {quoted(options.results)} holds none: python -m paper "
            "reproduce makes them; damper compare and damper evaluate write their own tables."
        )
    paths = write_report(options.results, out, options.formats, pages)
    say(f"{counted(len(paths), 'file')} in {quoted(out)}; open {quoted(paths[0])}")


def _own_pages(results: Path, out: Path) -> list[Path]:
    """The project's own pages, which show only the project's own results."""
    is_project = (results, out) == (Report.results, OWN_OUT)
    return [page for page in PAGES if is_project and has_place(page)]
