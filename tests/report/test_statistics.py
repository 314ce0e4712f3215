from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from damper.report.statistics import (
    average,
    bootstrap,
    difference,
    iqm,
    normalised,
    pareto,
    probability_of_improvement,
    relative_iqm,
    summarise,
    superiority,
)


def test_a_summary_by_hand() -> None:
    found = summarise([[1.0, 3.0], [5.0, 7.0], [3.0, 5.0]])
    assert found.mean == 4.0
    assert found.over_seeds == pytest.approx(2.0)  # of 2, 6, 4
    assert found.pooled == pytest.approx(np.sqrt(22 / 5))  # deviations −3 −1 1 3 −1 1 of six episodes
    assert found.iqm == 4.0
    assert found.interval is not None and 2.0 <= found.interval.low < 4.0 < found.interval.high <= 6.0
    assert (found.seeds, found.episodes) == (3, 2)


def test_one_seed_and_one_episode_have_no_spread() -> None:
    found = summarise([[2.5]])
    assert (found.mean, found.over_seeds, found.pooled, found.interval) == (2.5, None, None, None)
    one_seed = summarise([[1.0, 2.0, 3.0]])
    assert one_seed.over_seeds is None and one_seed.pooled == 1.0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 10, 30])
def test_the_interquartile_mean_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_the_interquartile_mean_by_hand() -> None:
    assert iqm(np.array([100.0, 1.0, 2.0, 3.0, -50.0])) == 2.0
    assert iqm(np.array([[4.0, 1, 2, 3], [8, 6, 7, 5]])).tolist() == [2.5, 6.5]


def test_two_seeds_have_the_interval_of_their_four_resamples() -> None:
    # Means of the resamples of {0, 1}: 0, ½, ½, 1, each of the ends with probability ¼.
    assert bootstrap({"": np.array([0.0, 1.0])}, average) == (0.0, 1.0)


def test_the_interval_agrees_with_scipys() -> None:
    values = np.random.default_rng(3).normal(10, 2, 8)
    ours = bootstrap({"": values}, average, "x", 40_000)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=40_000, rng=1).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.05)
    assert ours.high == pytest.approx(theirs.high, abs=0.05)


def test_strata_keep_their_sizes() -> None:
    # Every resample has two values of the first task and one of the second, so the mean is always 1/3 of 3.
    assert bootstrap({"a": np.array([0.0, 0.0]), "b": np.array([3.0])}, average) == (1.0, 1.0)
    mixed = bootstrap({"": np.array([0.0, 0.0, 3.0])}, average)
    assert mixed.low < 1.0 < mixed.high


def test_intervals_cover_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    hits = 0
    for i in range(300):
        low, high = bootstrap({"": random.normal(size=20)}, average, str(i), 600)
        hits += low <= 0.0 <= high
    assert 0.88 <= hits / 300 <= 0.98  # 95 %, less what percentiles of twenty values lose


def test_numbers_are_the_same_each_time_and_streams_are_their_own() -> None:
    values = np.random.default_rng(5).normal(size=5)
    assert bootstrap({"": values}, average, "a") == bootstrap({"": values}, average, "a")
    assert bootstrap({"": values}, average, "a") != bootstrap({"": values}, average, "b")


def test_superiority_is_the_u_statistic() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    assert superiority(x, y) == pytest.approx((0 + 1 + 0.5 + 1 + 1 + 1) / 6)
    random = np.random.default_rng(2)
    a, b = random.integers(0, 5, 9).astype(float), random.integers(0, 5, 7).astype(float)
    assert superiority(a, b) == pytest.approx(stats.mannwhitneyu(a, b).statistic / 63)


def test_probability_of_improvement_is_the_mean_over_tasks() -> None:
    ours = {"easy": np.array([5.0, 6.0]), "even": np.array([1.0, 1.0])}
    theirs = {"easy": np.array([1.0, 2.0]), "even": np.array([1.0, 1.0])}
    value, interval = probability_of_improvement(ours, theirs)
    assert value == 0.75 and interval == (0.75, 0.75)


def test_relative_change_by_hand() -> None:
    plain = {"a": np.array([-100.0, -100.0]), "b": np.array([10.0, 30.0])}
    ours = {"a": np.array([-50.0, -150.0]), "b": np.array([20.0, 40.0])}
    value, interval = relative_iqm(ours, plain)  # changes +½, −½, 0, +1: the middle two
    assert value == 0.25
    assert interval.low <= value <= interval.high


def test_differences() -> None:
    gap, interval = difference(np.array([3.0, 3.0]), np.array([1.0, 1.0]))
    assert gap == 2.0 and interval == (2.0, 2.0)
    assert difference(np.array([3.0]), np.array([1.0, 2.0])) == (1.5, None)


def test_the_front_holds_what_nothing_beats() -> None:
    points = [(1.0, 0.1), (2.0, 0.3), (1.5, 0.4), (3.0, 0.5), (3.0, 0.6), (0.5, 0.1)]
    assert pareto(points) == [0, 1, 3]
    assert pareto([]) == []


def test_normalisation_is_min_max() -> None:
    assert normalised([2.0, 4.0, 3.0]) == [0.0, 1.0, 0.5]
    assert normalised([7.0, 7.0]) == [0.0, 0.0]
