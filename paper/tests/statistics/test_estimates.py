from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from damper.errors import MissingExtraError
from damper.intervals import iqm, ratio_change, relative_change
from paper.statistics.estimates import (
    difference,
    initial_state_error,
    mean_interval,
    normalised,
    pareto,
    probability_of_improvement,
    summarise,
    superiority,
)


def test_a_summary_by_hand() -> None:
    found = summarise([[1.0, 3.0], [5.0, 7.0], [6.0, 8.0]])
    assert found.mean == 5.0 and found.median == 6.0
    assert found.values == (2.0, 6.0, 7.0) and found.seeds == 3
    assert found.over_seeds == pytest.approx(7**0.5)  # deviations −3, 1, 2
    assert found.pooled == pytest.approx(
        (34 / 5) ** 0.5
    )  # deviations −4 −2 0 2 1 3 of six episodes
    assert found.interval == pytest.approx(
        (5 - 4.302653 * (7 / 3) ** 0.5, 5 + 4.302653 * (7 / 3) ** 0.5)
    )


def test_one_seed_and_one_episode_have_no_spread() -> None:
    found = summarise([[2.5]])
    assert (found.mean, found.over_seeds, found.pooled, found.interval) == (2.5, None, None, None)
    one_seed = summarise([[1.0, 2.0, 3.0]])
    assert one_seed.over_seeds is None and one_seed.interval is None and one_seed.pooled == 1.0


def test_an_interval_is_over_seeds_however_wide_the_episodes_are() -> None:
    assert summarise([[-1000.0, 1000.0]] * 5).interval == (0.0, 0.0)


def test_one_seed_carries_a_mean_but_not_the_median() -> None:
    lunar = summarise([[261.0], [254.0], [224.0], [253.0], [-27.0]])
    assert lunar.mean == 193.0 and lunar.median == 253.0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 10, 30])
def test_the_interquartile_mean_is_scipys(n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_the_interquartile_mean_by_hand() -> None:
    assert iqm(np.array([100.0, 1.0, 2.0, 3.0, -50.0])) == 2.0
    assert iqm(np.array([[4.0, 1, 2, 3], [8, 6, 7, 5]])).tolist() == [2.5, 6.5]


@pytest.mark.parametrize("level", [0.95, 0.998])
def test_means_and_differences_have_scipys_intervals(level: float) -> None:
    random = np.random.default_rng(3)
    x, y = random.normal(-150, 20, 5), random.normal(-100, 2, 7)
    theirs = stats.ttest_1samp(x, 0).confidence_interval(level)
    assert mean_interval(x, level) == pytest.approx((theirs.low, theirs.high))
    welch = stats.ttest_ind(x, y, equal_var=False).confidence_interval(level)
    gap, interval = difference(x, y, level)
    assert gap == pytest.approx(x.mean() - y.mean()) and interval == pytest.approx(
        (welch.low, welch.high)
    )


def test_differences_by_hand() -> None:
    gap, interval = difference(np.array([3.0, 5.0]), np.array([-1.0, 1.0]))
    # Both means have variance 2/2 = 1, so two degrees of freedom and a standard error of √2.
    assert gap == 4.0 and interval == pytest.approx((4 - 4.302653 * 2**0.5, 4 + 4.302653 * 2**0.5))
    assert difference(np.array([3.0, 3.0]), np.array([1.0, 1.0])) == (2.0, (2.0, 2.0))
    assert difference(np.array([3.0]), np.array([1.0, 2.0])) == (1.5, None)


def test_superiority_is_the_u_statistic() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    assert superiority(x, y) == pytest.approx((0 + 1 + 0.5 + 1 + 1 + 1) / 6)
    random = np.random.default_rng(2)
    a, b = random.integers(0, 5, 9).astype(float), random.integers(0, 5, 7).astype(float)
    assert superiority(a, b) == pytest.approx(stats.mannwhitneyu(a, b).statistic / 63)


def test_probability_of_improvement_is_the_mean_over_tasks() -> None:
    ours = {"easy": np.array([5.0, 6.0]), "even": np.array([1.0, 1.0])}
    theirs = {"easy": np.array([1.0, 2.0]), "even": np.array([1.0, 1.0])}
    found = probability_of_improvement(ours, theirs)
    assert found is not None and found[0] == 0.75
    assert 0 < found[1].low < 0.75 < found[1].high < 1


def test_five_wins_of_five_do_not_make_a_certainty() -> None:
    high, low = np.arange(5.0) + 10, np.arange(5.0)
    found = probability_of_improvement({"": high}, {"": low})
    assert found is not None and found[0] == 1.0 and found[1].high == 1.0
    # Newcombe's method 5 by hand: the p at which 1 − p is z standard errors, (1 − p)·25 = z²·p·(1 +
    # 4·h(p)).
    p = found[1].low
    assert 25 * (1 - p) == pytest.approx(
        1.959964**2 * p * (1 + 4 * ((1 - p) / (2 - p) + p / (1 + p))), rel=1e-5
    )
    mirrored = probability_of_improvement({"": low}, {"": high})
    assert mirrored is not None and mirrored[1] == pytest.approx((0.0, 1 - p))
    tie = probability_of_improvement({"": low}, {"": low})
    assert tie is not None and tie[0] == 0.5 and tie[1].low + tie[1].high == pytest.approx(1.0)


def test_one_seed_has_neither_probability_nor_interval() -> None:
    one, two = {"": np.array([1.0])}, {"": np.array([2.0, 3.0])}
    assert (
        probability_of_improvement(one, two) is None
        and probability_of_improvement(two, one) is None
    )
    assert relative_change(one, two)[1] is None and relative_change(two, one)[1] is None


def test_relative_change_by_hand() -> None:
    plain = {"a": np.array([-100.0, -100.0]), "b": np.array([10.0, 30.0])}
    ours = {"a": np.array([-50.0, -150.0]), "b": np.array([20.0, 40.0])}
    value, interval = relative_change(ours, plain)  # changes +½, −½, 0, +1: the middle two
    assert value == 0.25
    assert interval is not None and interval.low < value < interval.high


def test_a_mean_of_zero_has_no_change() -> None:
    some, zero = np.array([1.0, 2.0]), np.array([-1.0, 1.0])
    value, interval = relative_change({"": some}, {"": zero})
    assert np.isnan(value) and interval is None
    value, interval = relative_change({"": some}, {"": np.array([0.0, 0.0, 3.0])}, np.mean)
    assert value == 0.5 and interval is None, "without the third seed there is none"
    assert np.isnan(relative_change({"": np.array([])}, {"": some})[0]) and np.isnan(
        ratio_change(np.array([]), some)[0]
    )


def test_a_change_knows_plains_mean_no_better_than_its_own() -> None:
    ours, plain = np.array([2.0, 4.0]), np.array([3.0, 5.0])
    value, interval = relative_change({"": ours}, {"": plain}, np.mean, never_negative=True)
    # Leaving one out gives −½, 0 (ours) and −⅖, 0 (plain): variances 1/16 and 1/25, one degree of
    # freedom.
    assert value == -0.25 and interval is not None
    assert interval.high == pytest.approx(-0.25 + 12.706205 * (1 / 16 + 1 / 25) ** 0.5)
    assert interval.low == -1.0  # what is never negative cannot lose more than all
    returns = relative_change({"": ours}, {"": plain}, np.mean)
    assert returns[1] is not None and returns[1].low < -1, (
        "that no seed's return was negative proves nothing"
    )
    negative = relative_change({"": -ours}, {"": -plain}, np.mean)
    assert negative[0] == 0.25 and negative[1] is not None and negative[1].low < -1
    known = relative_change({"": ours}, {"": np.array([4.0, 4.0])}, np.mean)[1]
    assert known is not None and known.high < interval.high


def test_a_ratio_of_means_by_hand() -> None:
    value, interval = ratio_change(np.array([2.0, 4.0]), np.array([3.0, 5.0]))
    # Means 3 and 4 with squared errors 1 and 1: the logarithm's variance is 1/9 + 1/16, of one
    # degree of freedom.
    half = 12.706205 * (1 / 9 + 1 / 16) ** 0.5
    assert value == -0.25 and interval == pytest.approx(
        (0.75 * np.exp(-half) - 1, 0.75 * np.exp(half) - 1)
    )
    assert interval is not None and interval.low > -1, "nothing never negative loses more than all"
    assert ratio_change(np.array([2.0]), np.array([1.0, 3.0])) == (0.0, None)
    assert ratio_change(np.zeros(5), np.ones(5)) == (-1.0, None), "zero has no logarithm"
    assert np.isnan(ratio_change(np.ones(5), np.zeros(5))[0])


def test_starts_by_hand() -> None:
    assert initial_state_error(np.array([[0.0, 4.0], [2.0, 6.0]])) == pytest.approx(
        8**0.5 / 2**0.5
    )  # starts average 1 and 5
    assert initial_state_error(np.array([[1.0], [2.0]])) is None


def test_scipy_is_asked_for_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(
        MissingExtraError, match=r'intervals need scipy: pip install "damper-rl\[report\]"'
    ):
        mean_interval(np.array([1.0, 2.0]))


def test_the_front_holds_what_nothing_beats() -> None:
    points = [(1.0, 0.1), (2.0, 0.3), (1.5, 0.4), (3.0, 0.5), (3.0, 0.6), (0.5, 0.1)]
    assert pareto(points) == [0, 1, 3]
    assert pareto([]) == []


def test_normalisation_is_min_max() -> None:
    assert normalised([2.0, 4.0, 3.0]) == [0.0, 1.0, 0.5]
    assert normalised([7.0, 7.0]) == [0.0, 0.0]
