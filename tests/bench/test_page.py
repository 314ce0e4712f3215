"""The page shows what the measurements' files hold, digit by digit."""

from __future__ import annotations

from pathlib import Path

from damper.bench.found import read

DOCS = Path(__file__).parents[2] / "docs"


def test_every_kept_measurement_is_on_the_page_as_it_was_measured() -> None:
    page = (DOCS / "bench.md").read_text(encoding="utf-8")
    files = sorted((DOCS / "bench").rglob("*.json"))
    assert files
    assert [str(path.relative_to(DOCS)) for path in files if read(path).markdown() not in page] == []
