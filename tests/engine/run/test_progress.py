"""What a run shows of itself: from its start, and its cost once updates are made."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from damper.engine.run import progress as module
from damper.engine.run.progress import Progress
from tests.engine import small

STEPS = 10_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def line(step: int, **values: Any) -> dict[str, Any]:
    return {"step": step, "frozen": [-1, -1], **values}


def test_a_pipe_gets_a_line_at_once_and_the_cost_after_a_hundred_updates(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(small.settings(steps=STEPS))
    begin = capsys.readouterr().out
    assert f"step 0 of {STEPS:,}, the time left is estimated after 100 updates" in begin
    for step in range(1, 1101):  # random steps are fast, and a step with its update takes 0.1 s
        clock[0] += 0.001 if step <= 1000 else 0.1
        progress.after_step(step, max(0, step - 1000))
    assert capsys.readouterr().out == "", "ninety-nine updates are timed so far"
    clock[0] += 0.1
    progress.after_step(1101, 101)
    assert "step 1,101 of 10,000, 10 steps/s, 14m 49s left" in capsys.readouterr().out
    progress(line(1102, mean_change=[0.25, None], sm=[1.0, 2.0]))
    assert capsys.readouterr().out == "", "metrics alone print nothing before their time"
    clock[0] += 16.0
    progress.after_step(1103, 103)
    assert "; mean |Δa| 0.2500\n" in capsys.readouterr().out
    progress(line(STEPS))
    assert f"step {STEPS:,} of" in capsys.readouterr().out
    progress.close()


def test_a_terminal_has_a_bar_and_a_table_from_the_start(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Console(force_terminal=True, width=100, record=True)
    monkeypatch.setattr(module, "console", lambda: screen)
    progress = Progress(small.settings(steps=STEPS))
    begin = screen.export_text()
    assert "step 0 of" in begin and "━" in begin
    assert begin.index("mean |Δa|") < begin.index("return") < begin.index(" sm ")
    progress.close()
