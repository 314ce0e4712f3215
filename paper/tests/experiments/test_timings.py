from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from paper.experiments.catalogue import Request
from paper.experiments.reproduce import overview
from paper.experiments.store import Store
from paper.experiments.timings import read_timings, write_timing
from paper.tests.experiments.helpers import TIMING


def test_timings_come_back_and_a_newer_one_replaces_its_like(tmp_path: Path) -> None:
    write_timing(tmp_path, TIMING)
    write_timing(tmp_path, replace(TIMING, milliseconds=0.4))
    write_timing(tmp_path, replace(TIMING, hardware={"gpu": "y"}))
    assert sorted(timing.milliseconds for timing in read_timings(tmp_path)) == [0.4, 0.5]
    assert asdict(read_timings(tmp_path)[0])["how"] == {"device": "cuda"}
    assert list(Store(tmp_path)) == []  # no agent's record


def test_the_list_counts_them(tmp_path: Path) -> None:
    write_timing(tmp_path, TIMING)
    (row,) = overview(Request(("update-time",)), tmp_path)
    assert (row.done, row.total, row.populations) == (1, 14, 0)


def test_a_damaged_timing_is_named(tmp_path: Path) -> None:
    write_timing(tmp_path, TIMING).write_text("{}")
    with pytest.warns(UserWarning, match="not a complete timing"):
        assert read_timings(tmp_path) == []


def test_rounds_are_kept(tmp_path: Path) -> None:
    write_timing(tmp_path, replace(TIMING, rounds=[0.4, 0.6]))
    assert read_timings(tmp_path)[0].rounds == [0.4, 0.6]
