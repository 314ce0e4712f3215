"""One failure stays one failure: the others' records are kept, and what failed is named."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from unittest.mock import patch

import pytest

from damper.errors import DamperError
from paper.cli import main
from paper.experiments.catalogue import expand_request
from paper.experiments.population_plan import Job, pack
from paper.experiments.store import Record, Store
from paper.runners.outcomes import combined_error, keep_records
from paper.tests.experiments.helpers import invented, tiny

JOBS = pack(expand_request(tiny(methods=("plain", "damper", "caps"))))


def test_one_after_another_the_others_are_trained_kept_and_the_one_that_failed_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fragile(job: Job, folder: Path, command: str, progress: bool) -> list[Record]:
        if job.settings.method == "plain":
            raise failure
        return [invented(agent) for agent in job.wanted]

    def run(results: Path) -> set[str]:
        options = "--tasks Pendulum --methods plain damper caps --seeds 2 --steps 300 --net-arch 8"
        arguments = f"reproduce td3-table {options} --results {results} --out {tmp_path}/runs"
        try:
            with patch("paper.runners.in_process.run_job", fragile):
                main(arguments.split())
        finally:
            kept.update(record.identity["method"] for record in Store(results))
        return kept

    failure: Exception = MemoryError("no room")
    kept: set[str] = set()
    with pytest.raises(MemoryError) as raised:
        run(tmp_path / "first")
    assert kept == {"damper", "caps"}
    assert raised.value.__notes__[0].startswith(
        "Pendulum td3 plain ×2 failed. What the others finished is kept"
    )
    failure, kept = DamperError("buffer_size is too large."), set()
    with pytest.raises(SystemExit) as ended:
        run(tmp_path / "second")
    assert kept == {"damper", "caps"} and ended.value.code == 2
    assert "damper: Pendulum td3 plain ×2: buffer_size is too large." in capsys.readouterr().err


def test_a_failed_population_holds_no_memory_while_the_others_train(tmp_path: Path) -> None:
    class Replay:
        pass

    def fail() -> None:
        replay = Replay()
        held.append(weakref.ref(replay))
        raise MemoryError

    def train() -> list[Record]:
        gc.collect()
        alive.append(held[0]() is not None)
        return [invented(agent) for agent in JOBS[1].wanted]

    held: list[weakref.ref[Replay]] = []
    alive: list[bool] = []
    with pytest.raises(MemoryError):
        keep_records([(JOBS[0], fail), (JOBS[1], train)], Store(tmp_path), 2, progress=False)
    assert alive == [False] and len(list(Store(tmp_path))) == len(JOBS[1].wanted)


def test_a_workers_mistake_is_told_as_its_sentence() -> None:
    wrapped = DamperError(
        "a long story"
    )  # as Ray makes it: of the same type, with the sentence as its cause
    wrapped.cause = DamperError("buffer_size is too large.")  # type: ignore[attr-defined]
    told = str(combined_error([(JOBS[0], wrapped), (JOBS[1], DamperError("another."))]))
    assert (
        told
        == "Pendulum td3 plain ×2: buffer_size is too large. (Also failed: Pendulum td3 damper ×2.)"
    )
    bug = RuntimeError("a bug")
    assert combined_error([(JOBS[0], bug)]) is bug
    both = combined_error([(JOBS[0], bug), (JOBS[1], wrapped)])
    assert isinstance(both, ExceptionGroup) and both.exceptions == (bug, wrapped)


def test_being_stopped_stops(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    def train() -> list[Record]:
        raise AssertionError("nothing is trained after it")

    with pytest.raises(KeyboardInterrupt):
        keep_records([(JOBS[0], stop), (JOBS[1], train)], Store(tmp_path), 2, progress=False)
