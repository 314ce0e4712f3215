"""One comparison and its word, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from damper.intervals import Interval
from paper.claims.comparisons import (
    BETTER,
    CONSTANT,
    FAILS,
    HOLDS,
    LEANS,
    LEANS_AGAINST,
    OPEN,
    Check,
    Evidence,
    Side,
    against,
    claim_level,
    close,
    compare_means,
    conjunction,
    extreme,
)
from paper.experiments.printed import paper
from paper.statistics.cells import setups
from paper.tests.experiments.helpers import agents_of, invented

SPREAD = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


def side(mean: float, scale: float = 1.0, name: str = "x") -> Side:
    return Side(name, mean + scale * SPREAD)


UNKNOWN = Side("?", None)


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [(0, 30, HOLDS), (0, 1, LEANS), (1, 0, LEANS_AGAINST), (30, 0, FAILS), (5, 5, LEANS)],
)
def test_words_of_a_comparison(ours: float, theirs: float, word: str) -> None:
    for sign, expect in ((1, "lower"), (-1, "higher")):  # negative returns included
        assert compare_means("Task", side(sign * ours), side(sign * theirs), expect).verdict == word


def test_what_is_conceded_can_only_be_better() -> None:
    assert compare_means("Task", side(1), side(0), concession=True).verdict == BETTER
    assert "within the noise" in compare_means("Task", side(1), side(0), concession=True).text
    sure = compare_means("Task", side(30), side(0), concession=True)
    assert sure.verdict == BETTER and "within the noise" not in sure.text
    assert compare_means("Task", side(-30), side(0), concession=True).verdict == HOLDS


def test_the_gap_and_its_corrected_interval_are_printed() -> None:
    level = claim_level()
    assert level == pytest.approx(1 - 0.05 / len(paper()["claims"]))
    check = compare_means("Task sm", side(0, name="DAMPER"), side(30, name="TD3"))
    # Both means have variance 2.5/5, eight degrees of freedom, a standard error of 1.
    half = float(stats.t.ppf((1 + level) / 2, 8))
    assert check.text == f"Task sm: DAMPER 0, TD3 30; gap −30 [−{30 + half:.4g}, −{30 - half:.4g}]"


def test_what_rounding_leaves_of_zero_is_printed_as_zero() -> None:
    assert (
        "D 0, TD3 30;"
        in compare_means("Task sm", side(6e-17, 0, name="D"), side(30, name="TD3")).text
    )


def test_a_share_is_asked_of_the_size_whatever_the_sign() -> None:
    # At most a fifth of 100 is 20; 80 % below −100 is −180.
    assert compare_means("", side(0), side(100), by=0.8).verdict == HOLDS
    assert compare_means("", side(30), side(100), by=0.8).verdict == FAILS
    assert compare_means("", side(-170), side(-100), by=0.8).verdict == FAILS
    assert compare_means("", side(-220), side(-100), by=0.8).verdict == HOLDS
    # No more than a tenth below −100 is −110.
    assert compare_means("", side(-105), side(-100), "higher", by=0.1).verdict in (HOLDS, LEANS)
    assert compare_means("", side(-115), side(-100), "higher", by=0.1).verdict == FAILS


def test_closeness_is_shown_only_by_a_narrow_interval() -> None:
    assert close("", side(100, 0.01), side(101, 0.01)).verdict == HOLDS
    assert close("", side(-100, 0.01), side(-101, 0.01)).verdict == HOLDS
    assert close("", side(100), side(101)).verdict == LEANS
    # The interval excludes zero, but not a distance of 5 %.
    assert close("", side(100), side(108)).verdict == LEANS_AGAINST
    assert close("", side(100), side(300)).verdict == FAILS


def test_against_a_number() -> None:
    ratio = Side("", np.array([0.1, 0.2, 0.1, 0.2, 0.15]))
    assert against("q", ratio, 1.0, "lower", "weak").verdict == HOLDS
    assert against("q", ratio, 0.16, "lower", "weak").verdict == LEANS
    assert against("q", ratio, 0.5, "higher", "often").verdict == FAILS
    assert against("q", UNKNOWN, 1.0, "lower", "weak").verdict == OPEN


def test_no_bound_is_printed_that_cannot_be() -> None:
    share = Side("", np.array([0.1, 0.9, 0.1, 0.9, 0.5]))
    assert (
        "0.5 [0, 1], often" in against("q", share, 0.25, "higher", "often", Interval(0.0, 1.0)).text
    )
    assert "0.5 [−0." in against("q", share, 0.25, "higher", "often").text


def test_the_least_favourable_rival_speaks_for_all() -> None:
    check = extreme("T", side(0, name="D"), [side(90, name="far"), side(30, name="near"), side(60)])
    assert (
        check.verdict == HOLDS and "near 30" in check.text and "least favourable of 3" in check.text
    )
    assert extreme("T", side(0), [side(90), side(1)]).verdict == LEANS
    assert extreme("T", side(0), [side(-30), UNKNOWN]).verdict == FAILS, (
        "one counterexample settles it"
    )
    doubtful = extreme("T", side(0), [side(-1, name="near"), UNKNOWN])
    assert doubtful.verdict == OPEN, "not one within the noise"
    assert "near −1" in doubtful.text
    missing = extreme("T", side(0), [side(30), UNKNOWN])
    assert missing.verdict == OPEN and "1 not yet measured" in missing.text
    assert extreme("T", UNKNOWN, [side(1)]).verdict == OPEN
    highest = extreme("T", side(-100), [side(-150, name="near"), side(-900)], "higher")
    assert highest.verdict == HOLDS and "near −150" in highest.text


def test_a_best_of_twenty_takes_a_wider_interval() -> None:
    assert compare_means("", side(0), side(5.5)).verdict == HOLDS
    assert compare_means("", side(0), side(5.5), candidates=20).verdict == LEANS


def test_a_conjunction() -> None:
    assert conjunction([HOLDS, HOLDS]) == HOLDS
    assert conjunction([HOLDS, LEANS, BETTER]) == LEANS
    assert conjunction([HOLDS, BETTER]) == BETTER
    assert conjunction([HOLDS, OPEN, LEANS]) == OPEN
    assert conjunction([OPEN, FAILS]) == FAILS
    assert conjunction([OPEN, LEANS_AGAINST]) == OPEN, (
        "within the noise nothing is settled before all is known"
    )
    assert conjunction([LEANS, LEANS_AGAINST, HOLDS]) == LEANS_AGAINST
    assert conjunction([HOLDS, CONSTANT, LEANS]) == CONSTANT
    assert conjunction([]) == OPEN


def test_smoothness_beside_constant_actions_is_no_comparison() -> None:
    agents = agents_of("td3-table", tasks=("Hopper",), methods=("plain", "damper"))
    records = [
        invented(agent, sm=1.0 if agent.identity["method"] == "plain" else 0.0) for agent in agents
    ]

    def check(constant: int, measure: str) -> Check:
        changed = [{"mean_change": [0.0] * 10} if 5 <= i < 5 + constant else {} for i in range(10)]
        cells = [
            replace(r, episodes={**r.episodes, **new})
            for r, new in zip(records, changed, strict=True)
        ]
        sides = (
            Evidence(setups(cells)[0]).side("td3", "Hopper", method, measure)
            for method in ("damper", "plain")
        )
        return compare_means("Hopper", *sides)

    assert [check(n, "sm").verdict for n in (0, 2, 3, 5)] == [HOLDS, HOLDS, CONSTANT, CONSTANT]
    assert check(3, "sm").text.endswith("; DAMPER: constant action, 3 of 5")
    assert check(5, "return").verdict == LEANS, "a return is a return"


def test_variability_is_the_distance_from_the_median() -> None:
    found = Side("x", np.array([1.0, 2.0, 10.0])).spread.values
    assert found is not None and found.tolist() == [1.0, 0.0, 8.0]


def test_a_measure_counts_the_seeds_that_have_it() -> None:
    records = [
        invented(agent) for agent in agents_of("td3-table", tasks=("Hopper",), methods=("plain",))
    ]
    records[0] = replace(records[0], episodes={**records[0].episodes, "sm": [None] * 10})
    (setup,) = setups(records)
    assert Evidence(setup).side("td3", "Hopper", "plain", "return").values is not None
    assert Evidence(setup).side("td3", "Hopper", "plain", "sm").values is None


def test_another_eta_stands_in_for_the_papers() -> None:
    agents = agents_of("td3-table", "one-eta", tasks=("LunarLander",), methods=("damper",))
    (setup,) = setups(
        [invented(agent, sm=agent.identity["method_settings"]["eta"]) for agent in agents]
    )
    assert Evidence(setup).side("td3", "LunarLander", "damper", "sm").mean == pytest.approx(0.8)
    assert Evidence(setup, 1.0).side("td3", "LunarLander", "damper", "sm").mean == 1.0
    assert Evidence(setup, 1.0).cell("td3", "LunarLander", "plain") is None
    assert Evidence(setup, 1.0).cell("td3", "LunarLander", "damper", eta=0.8) is setup.find(
        "td3", "LunarLander", "damper"
    )
