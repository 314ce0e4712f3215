"""Populations in several processes fill the store as one process would."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from damper.engine.device import transfers
from damper.engine.run.folder import Run
from damper.engine.run.stop import Stopped
from damper.errors import DamperError
from paper.experiments.catalogue import Request, expand_request
from paper.experiments.population_plan import Job
from paper.experiments.reproduce import reproduce
from paper.experiments.store import Record, Store
from paper.runners import workers
from paper.runners.in_process import plan, run_job
from paper.runners.workers import fitting_workers, run_in_workers, run_jobs

SMALL = {"net_arch": (8, 8), "learning_starts": 50, "batch_size": 8}
REQUEST = Request(
    ("td3-table",),
    tasks=("Pendulum",),
    methods=("plain", "damper"),
    seeds=1,
    steps=120,
    episodes=1,
    settings=SMALL,
)


def test_two_workers_record_what_one_process_does(tmp_path: Path) -> None:
    outcome = reproduce(
        REQUEST, tmp_path / "two", tmp_path / "runs", progress=False, runner=run_in_workers
    )
    assert (outcome.added, outcome.left) == (2, 0)
    reproduce(REQUEST, tmp_path / "one", tmp_path / "others", progress=False)
    ours, theirs = (
        {str(record.identity): record.episodes for record in Store(tmp_path / name)}
        for name in ("two", "one")
    )
    assert ours == theirs


def test_a_failed_population_is_told_after_the_others_are_kept(tmp_path: Path) -> None:
    jobs = plan(expand_request(REQUEST), tmp_path / "runs")
    occupied = jobs[1][1]
    occupied.mkdir(parents=True)
    (occupied / "thesis.txt").write_text("not a run")
    store = Store(tmp_path / "results")
    with pytest.raises(DamperError, match="holds other files"):
        run_in_workers(jobs, store, "damper", progress=False)
    assert [record.identity["method"] for record in store] == [jobs[0][0].settings.method]


def _fragile(job: Job, folder: Path, command: str, progress: bool) -> list[Record] | None:
    """``run_job``, but for three methods."""
    if job.settings.method == "plain":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.settings.method == "caps":
        raise MemoryError("no room")
    if job.settings.method == "asap":
        raise KeyboardInterrupt
    return run_job(job, folder, command, progress)


def test_a_killed_process_one_without_memory_and_one_stopped_take_no_other_with_them(
    tmp_path: Path,
) -> None:
    jobs = plan(
        expand_request(replace(REQUEST, methods=("plain", "caps", "asap", "damper"))),
        tmp_path / "runs",
    )
    store = Store(tmp_path / "results")
    with patch("paper.runners.workers.run_job", _fragile), pytest.raises(ExceptionGroup) as failed:
        run_in_workers(jobs, store, "damper", progress=False)
    assert [record.identity["method"] for record in store] == ["damper"]
    told = {str(error): error.__notes__[0] for error in failed.value.exceptions}
    for method, said in {
        "plain": "its process was killed",
        "caps": "no room",
        "asap": "its process was stopped",
    }.items():
        (note,) = (note for text, note in told.items() if said in text)
        assert note.startswith(f"Pendulum td3 {method} ×1 failed")


def test_every_population_steps_its_environments_with_its_agents_share_of_the_threads(
    tmp_path: Path,
) -> None:
    def population(method: str, seeds: int, **settings: int) -> tuple[Job, Path]:
        given = {**SMALL, "backend": "envpool", **settings}
        ((job, folder),) = plan(
            expand_request(replace(REQUEST, methods=(method,), seeds=seeds, settings=given)),
            tmp_path / "runs",
        )
        return job, folder

    jobs = [population("plain", 3), population("caps", 1), population("damper", 3, env_threads=1)]
    with patch("paper.runners.workers.usable_cores", lambda: 4):
        run_in_workers(jobs, Store(tmp_path / "results"), "damper", progress=False, workers=2)
    # Two of three at once: at most six agents, and six threads on four cores.
    assert [Run(folder).manifest["settings"]["env_threads"] for _, folder in jobs] == [3, 1, 1]


def test_workers_must_be_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(DamperError, match="workers must be at least 1, but 0"):
        run_in_workers([], Store(tmp_path), "damper", workers=0)


def test_a_signal_stops_every_worker_with_everything_saved(tmp_path: Path) -> None:
    long = replace(
        REQUEST,
        steps=1_000_000,
        methods=("plain", "damper", "caps"),
        settings={**SMALL, "log_every": 50},
    )
    jobs, store = plan(expand_request(long), tmp_path / "runs"), Store(tmp_path / "results")

    def send() -> None:
        while len(list(tmp_path.glob("runs/*/*/metrics.jsonl"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(Stopped, match="stopped; the same command resumes what was started"):
        run_in_workers(jobs, store, "damper", progress=False)
    begun = [Run(path.parent) for path in tmp_path.glob("runs/*/*/manifest.json")]
    assert len(begun) == 2 and all(
        run.has_checkpoint and run.policy().info.steps > 50 for run in begun
    )


def test_a_gpu_trains_several_at_once_and_a_cpu_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "usable_cores", lambda: 16)
    jobs = [job for job, _ in plan(expand_request(replace(REQUEST, methods=())), tmp_path / "runs")]
    on_gpu = [replace(job, settings=replace(job.settings, device="cuda")) for job in jobs]
    assert len(jobs) == 7 and fitting_workers(jobs) == 1 and fitting_workers(on_gpu) == 7
    monkeypatch.setattr(workers, "usable_cores", lambda: 8)
    assert fitting_workers(on_gpu) == 4 and fitting_workers(on_gpu[:1]) == 1
    monkeypatch.setattr(workers, "usable_cores", lambda: 64)
    assert fitting_workers(on_gpu * 2) == workers.MOST_ON_A_GPU
    monkeypatch.setattr(workers, "usable_cores", lambda: 8)
    counts: list[int] = []
    monkeypatch.setattr(workers, "run_here", lambda *_: counts.append(0))
    monkeypatch.setattr(workers, "run_in_workers", lambda *a: counts.append(a[-1]))
    for given, chosen in ((jobs, None), (on_gpu, None), (on_gpu, 1), (jobs, 3)):
        run_jobs([(job, tmp_path) for job in given], Store(tmp_path), "damper", False, chosen)
    assert counts == [0, 4, 0, 3]


def test_a_worker_sleeps_while_it_waits_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_blocking_events", False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(workers.torch, "set_num_threads", lambda _: None)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    workers._prepare(1)
    assert transfers._blocking_events
