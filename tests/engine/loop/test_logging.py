"""Python's logging hears what a run does."""

from __future__ import annotations

import logging
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from damper.engine.loop.trainer import Trainer
from damper.engine.settings import resolve
from tests.engine import small
from tests.engine.diary import Poisoned


def test_a_run_is_told_from_beginning_to_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="damper")
    made = small.settings(
        steps=60, log_every=30, checkpoint_every=40, eval_every=60, eval_episodes=1
    )
    Trainer(made, tmp_path / "run", callbacks=(lambda training: training.step != 30,)).train()
    Trainer(made, tmp_path / "run").train()
    assert {record.name.split(".")[0] for record in caplog.records} == {"damper"}
    told = [
        (record.levelname, record.getMessage().removeprefix(f"{tmp_path / 'run'}: "))
        for record in caplog.records
    ]
    beginnings = [
        ("INFO", "2 agents train from step 0 to 60"),
        ("INFO", "step 30 of 60, "),
        ("DEBUG", "checkpoint at step 31"),
        ("INFO", "stopped at step 31 of 60"),
        ("INFO", "2 agents train from step 31 to 60"),
        ("DEBUG", "checkpoint at step 40"),
        ("INFO", "evaluation at step 60, returns [-"),
        ("INFO", "step 60 of 60, "),
        ("INFO", "finished"),
    ]
    assert len(told) == len(beginnings)
    for (level, text), (expected, beginning) in zip(told, beginnings, strict=True):
        assert level == expected and text.startswith(beginning)


def test_a_frozen_agent_is_a_warning_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(
        logging.WARNING, logger="damper"
    )  # whatever other tests made of the root logger
    tiny = {"net_arch": (8, 8), "batch_size": 8, "learning_starts": 20, "log_every": 100}
    run = Trainer(
        resolve(Poisoned, "td3", "plain", (0, 1, 2), 500, **tiny), tmp_path / "run"
    ).train()
    update = run.manifest["frozen"]["1"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{run.path}: agent 1 was frozen at update {update}: its gradient was not finite, and "
        "neither were rewards "
        "from its environment"
    ]


def test_speed_is_that_of_this_process_and_seconds_are_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count(
        0, 10
    )  # ten seconds from one to the next: at the start, twice at a line, at a checkpoint
    monkeypatch.setattr(
        "damper.engine.loop.trainer.time", SimpleNamespace(perf_counter=lambda: next(looks))
    )
    made = small.settings(steps=60, log_every=20, checkpoint_every=0)
    Trainer(made, tmp_path / "run", callbacks=(lambda training: training.step < 40,)).train()
    run = Trainer(made, tmp_path / "run").train()
    told = [(line["step"], line["steps_per_second"], line["seconds"]) for line in run.metrics()]
    # It stops at step 41 after 50 seconds.
    assert told == [(20, 2.0, 20.0), (40, 1.3, 40.0), (60, 1.9, 70.0)]
