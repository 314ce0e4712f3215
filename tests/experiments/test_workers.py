"""Populations in several processes fill the store as one process would."""

from __future__ import annotations

from pathlib import Path

import pytest

from damper.errors import DamperError
from damper.experiments.grids import Request, wanted
from damper.experiments.reproduce import reproduce
from damper.experiments.runner import plan
from damper.experiments.store import Store
from damper.experiments.workers import run_in_workers

SMALL = {"net_arch": (8, 8), "learning_starts": 50, "batch_size": 8}
REQUEST = Request(
    ("td3-table",), tasks=("Pendulum",), methods=("plain", "damper"), seeds=1, steps=120, episodes=1, settings=SMALL
)


def test_two_workers_record_what_one_process_does(tmp_path: Path) -> None:
    outcome = reproduce(REQUEST, tmp_path / "two", tmp_path / "runs", progress=False, runner=run_in_workers)
    assert (outcome.added, outcome.left) == (2, 0)
    reproduce(REQUEST, tmp_path / "one", tmp_path / "others", progress=False)
    ours, theirs = (
        {str(record.identity): record.episodes for record in Store(tmp_path / name)} for name in ("two", "one")
    )
    assert ours == theirs


def test_a_failed_population_is_told_after_the_others_are_kept(tmp_path: Path) -> None:
    jobs = plan(wanted(REQUEST), tmp_path / "runs")
    occupied = jobs[1][1]
    occupied.mkdir(parents=True)
    (occupied / "thesis.txt").write_text("not a run")
    store = Store(tmp_path / "results")
    with pytest.raises(DamperError, match="holds other files"):
        run_in_workers(jobs, store, "damper", progress=False)
    assert [record.identity["method"] for record in store] == [jobs[0][0].settings.method]


def test_workers_must_be_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(DamperError, match="workers must be at least 1, but 0"):
        run_in_workers([], Store(tmp_path), "damper", workers=0)
