"""What is published is what the records say: nobody edits a table by hand, nobody forgets to build it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from damper.experiments.store import Store
from damper.report.build import write_report
from damper.report.cells import setups
from damper.report.headline import headline

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fresh")
    write_report(ROOT / "results", out, formats=())
    return out


@pytest.mark.parametrize("name", ["report.html", "tables.md", "tables.tex"])
def test_the_published_report_is_that_of_the_records(fresh: Path, name: str) -> None:
    published, built = (folder.joinpath(name).read_text().splitlines() for folder in (ROOT / "docs/results", fresh))
    # Pictures stand in the Markdown only where they are drawn, which takes longer than a test should.
    published = [line for line in published if not line.startswith("![")]
    assert [line for line in published if line] == [line for line in built if line], "run damper report"


def test_the_readme_s_table_is_that_of_the_records() -> None:
    assert headline(setups(Store(ROOT / "results"))) in (ROOT / "README.md").read_text(), (
        "run damper report --readme README.md"
    )
