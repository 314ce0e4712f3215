"""Intervals hold the true value as often as the documentation says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from damper.intervals import ratio_change, relative_change
from paper.claims.comparisons import claim_level
from paper.statistics.estimates import difference, mean_interval
from paper.tables.claims import caution
from paper.tests.statistics.coverage import (
    CHANGE_WORLDS,
    FALSE_CLAIMS,
    METHODS,
    TRUE_EFFECTS,
    change_coverage,
    chattering,
    coverage,
    false_holds,
    jackknife_bounds,
    log_ratio_bounds,
    normal,
    student_bounds,
    table_row,
    true_holds,
    welch_bounds,
    widths,
)

PAGE = Path(__file__).parents[3] / "docs" / "results" / "intervals.md"
TRIALS = 1000
USED = [name for name in METHODS if "bootstrap" not in name]


def page_rows() -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in PAGE.read_text().splitlines()
    ]


def stated() -> dict[str, list[int]]:
    """The table of coverages in the documentation."""
    return {row[0]: [int(cell) for cell in row[1:]] for row in page_rows() if row[0] in METHODS}


@pytest.mark.parametrize(
    "name", ["mean: Student's t", "difference: Welch's t", "P(better), one task: score"]
)
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


@pytest.mark.parametrize("world", CHANGE_WORLDS)
def test_changes_are_covered_as_often_as_the_documentation_says(world: str) -> None:
    (written,) = ([int(cell) for cell in row[1:]] for row in page_rows() if row[0] == world)
    found = change_coverage(world)
    assert found == pytest.approx(written, abs=1), f"write {found}"
    if "plain's" in world:
        assert found[1] > found[0] and found[3] > found[2], "why the jackknife is not used here"


def test_what_is_simulated_of_changes_is_what_the_tables_print() -> None:
    random = np.random.default_rng(0)
    x, y = chattering(random, (20, 5), 0.2), chattering(random, (20, 5), 0.6)
    pairs = list(zip(x, y, strict=True))
    assert np.transpose(log_ratio_bounds(x, y)) == pytest.approx(
        np.array([ratio_change(a, b)[1] for a, b in pairs])
    )
    known = [relative_change({"": a}, {"": b}, np.mean, never_negative=True)[1] for a, b in pairs]
    assert np.transpose(jackknife_bounds(x, y)) == pytest.approx(np.array(known))


def test_what_is_simulated_at_the_claims_level_is_what_judges_them() -> None:
    x, y = np.random.default_rng(0).normal(0.0, 1.0, (2, 20, 5)) * [[[1.0]], [[3.0]]]
    level = claim_level()
    assert np.transpose(student_bounds(x, level)) == pytest.approx(
        np.array([mean_interval(row, level) for row in x])
    )
    by_row = [difference(a, b, level)[1] for a, b in zip(x, y, strict=True)]
    assert np.transpose(welch_bounds(x, y, level)) == pytest.approx(np.array(by_row))


@pytest.mark.parametrize("name", FALSE_CLAIMS)
def test_false_claims_hold_as_often_as_the_documentation_says(name: str) -> None:
    (written,) = ([float(cell) for cell in row[1:]] for row in page_rows() if row[0] == name)
    assert false_holds(name) == pytest.approx(written, abs=0.02, rel=0.1)


@pytest.mark.parametrize("name", TRUE_EFFECTS)
def test_true_claims_hold_as_often_as_the_documentation_says(name: str) -> None:
    (written,) = ([int(cell) for cell in row[1:]] for row in page_rows() if row[0] == name)
    assert true_holds(name) == pytest.approx(written, abs=0.6)


def test_a_lean_is_no_evidence() -> None:
    assert (
        "five seeds such an interval is {:.1f} to {:.1f} times as wide".format(*widths())
        in PAGE.read_text()
    )
    said = caution("")
    assert "about twice as wide as at 95 %" in said and 1.5 < min(widths()) < max(widths()) < 2.5
    assert "two standard deviations in about one case of five" in said
    assert true_holds("two standard deviations")[0] == pytest.approx(20, abs=5)


def test_the_documentation_says_where_the_family_wise_level_does_not_hold() -> None:
    nominal = 100 * (1 - claim_level()) / 2
    assert f"hold in {nominal:.2f} % of all cases" in PAGE.read_text()
    rows = {
        row[0]: [float(cell) for cell in row[1:]] for row in page_rows() if row[0] in FALSE_CLAIMS
    }
    assert rows.keys() == FALSE_CLAIMS.keys()
    assert all(max(values[0], values[3]) < nominal + 0.03 for values in rows.values()), (
        "a normal world"
    )
    assert max(map(max, rows.values())) > 20 * nominal
