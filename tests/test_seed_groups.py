"""Agents that differ by seed alone are one row of a table."""

from __future__ import annotations

from damper.seed_groups import group_by_settings


def test_seeds_are_one_group_and_settings_another() -> None:
    assert group_by_settings([{"seed": 1}, {"seed": 2}]) == {"all": [0, 1]}
    agents = [{"eta": eta, "seed": seed} for eta in (0.5, 1.0, "linear:0:1") for seed in (1, 2)]
    assert group_by_settings(agents) == {
        "eta=0.5": [0, 1],
        "eta=1": [2, 3],
        "eta=linear:0:1": [4, 5],
    }
    assert group_by_settings([{"seed": 0, "eta": 1}, {"seed": 1, "eta": 1.0}]) == {"eta=1": [0, 1]}


def test_values_that_differ_after_six_digits_are_told_apart() -> None:
    near = (0.12345671, 0.12345672)
    agents = [{"eta": eta, "tau": 1 / 3, "seed": seed} for eta in near for seed in (1, 2)]
    assert group_by_settings(agents) == {
        "eta=0.12345671 tau=0.333333": [0, 1],
        "eta=0.12345672 tau=0.333333": [2, 3],
    }
    assert group_by_settings(
        [{"method": "damper", "eta": eta, "seed": 0} for eta in (*near, 0.5)]
    ) == {"damper eta=0.12345671": [0], "damper eta=0.12345672": [1], "damper eta=0.5": [2]}
