from __future__ import annotations

import pytest

from paper.bench.interleaved_timing import CLOCKS, InterleavedTimes, Plan, time_interleaved


def test_everyone_has_as_many_turns_and_who_goes_first_rotates() -> None:
    calls: list[tuple[str, int]] = []
    workloads = {name: lambda n, name=name: calls.append((name, n)) for name in "abc"}
    turns = time_interleaved(workloads, Plan(iterations=12, rounds=3), warm_up=5)
    assert calls[:3] == [("a", 5), ("b", 5), ("c", 5)]
    assert calls[3:] == [(name, 4) for name in "abcbcacab"]
    assert {name: len(times) for name, times in turns.seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_each_is_charged_with_its_own_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([0, 1, 10, 14, 20, 28, 30, 32])  # before and after each turn
    monkeypatch.setitem(CLOCKS, "wall", lambda: next(looks))
    times = time_interleaved(
        {"a": lambda n: None, "b": lambda n: None}, Plan(iterations=4, rounds=2), warm_up=0
    )
    assert times.seconds == {
        "a": [0.5, 1.0],
        "b": [2.0, 4.0],
    }  # of one of two iterations; b goes first in round two


@pytest.mark.parametrize(
    ("iterations", "rounds", "each", "times"), [(1, 20, 2, 1), (10, 3, 2, 3), (100, 20, 4, 20)]
)
def test_a_turn_holds_an_even_number(iterations: int, rounds: int, each: int, times: int) -> None:
    calls: list[int] = []
    time_interleaved({"a": calls.append}, Plan(iterations, rounds), warm_up=0)
    assert calls[1:] == [each] * times


def test_ratios_are_taken_within_a_round() -> None:
    turns = InterleavedTimes({"ours": [1.0, 10.0, 2.0], "theirs": [2.0, 20.0, 1.0]})
    assert turns.ratio("ours", "theirs") == 0.5
    assert turns.median_ms("ours") == 2000.0
    assert turns.mean_ms("ours") == pytest.approx(13000.0 / 3)
