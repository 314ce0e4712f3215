"""Intervals hold the true value as often as the documentation says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.statistics.coverage import METHODS, coverage, normal, table_row

PAGE = Path(__file__).parents[3] / "docs" / "statistics.md"
TRIALS = 1000
USED = [name for name in METHODS if "bootstrap" not in name]


def stated() -> dict[str, list[int]]:
    """The table of coverages in the documentation."""
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in PAGE.read_text().splitlines()]
    return {row[0]: [int(cell) for cell in row[1:]] for row in rows if row[0] in METHODS}


@pytest.mark.parametrize("name", ["mean: Student's t", "difference: Welch's t", "P(better), one task: score"])
def test_five_seeds_of_a_normal_world_are_covered(name: str) -> None:
    assert 0.9 <= coverage(METHODS[name], normal, 5, 200) <= 1.0


def test_a_percentile_bootstrap_of_five_seeds_would_not_be() -> None:
    assert coverage(METHODS["mean: percentile bootstrap"], normal, 5, 150) < 0.9


def test_the_documentation_states_a_coverage_for_every_interval_in_use() -> None:
    assert stated().keys() == METHODS.keys()
    assert all(min(values[0], values[3]) >= 94 for name, values in stated().items() if name in USED)
    assert all(min(values) >= 85 for name, values in stated().items() if name in USED)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_documented_coverage_is_what_a_simulation_finds(name: str) -> None:
    found = [int(value) for value in table_row(name, TRIALS)[1:]]
    assert found == pytest.approx(stated()[name], abs=1), f"write {found}"
