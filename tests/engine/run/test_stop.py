"""Asked to stop, a run saves everything; later it goes on, is extended, or is looked at."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import damper
from damper.cli import main
from damper.engine.loop.policies import actor_params
from damper.engine.loop.trainer import Trainer
from damper.engine.run.folder import Run
from damper.engine.run.stop import Stopped, StopSignals
from damper.engine.train import run_settings
from damper.errors import DamperError
from damper.policies.opening import open_policy
from tests.engine import killed_run, small

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
TIMES = ("seconds", "steps_per_second")


def ask(number: int, step: int = 100) -> Callable[[dict[str, Any]], None]:
    """A listener that asks the process to stop, once, at that step's line."""
    left = [number]
    return lambda line: os.kill(os.getpid(), left.pop()) if left and line["step"] == step else None


def lines(run: Run) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in line.items() if name not in TIMES} for line in run.metrics()
    ]


# --- stopping -------------------------------------------------------------------------------------


@SIGNALS
def test_a_stopped_run_goes_on_from_the_next_step_as_if_nothing_had_happened(
    tmp_path: Path, number: int
) -> None:
    made = small.settings(
        steps=150, log_every=50, checkpoint_every=0, train_freq=3, gradient_steps=2
    )
    whole = Trainer(made, tmp_path / "whole")
    whole.train()
    before = signal.getsignal(number)
    with pytest.raises(
        Stopped, match=r"run at step 101 of 150; the same command resumes it\."
    ) as stopped:
        Trainer(made, tmp_path / "run", (ask(number),)).train()
    assert stopped.value.number == number and signal.getsignal(number) == before
    again = Trainer(made, tmp_path / "run")
    assert again.step == 101
    run = again.train()
    assert killed_run.sums(again) == killed_run.sums(whole) and lines(run) == lines(whole.run)
    assert not run.has_checkpoint


@SIGNALS
def test_the_command_says_where_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    command = [
        "train",
        "Pendulum-v1",
        "--steps",
        "150",
        "--out",
        str(tmp_path / "run"),
        "--net-arch",
        "8",
        "8",
    ]
    command += ["--log-every", "50", "--learning-starts", "20", "--batch-size", "8"]
    log = Trainer._log
    with monkeypatch.context() as patch:
        asks = ask(number)
        patch.setattr(Trainer, "_log", lambda self: (log(self), asks({"step": self.step})))
        with pytest.raises(SystemExit) as ended:
            main(command)
    assert ended.value.code == 128 + number
    assert (
        "run at step 101 of 150; the same command resumes it."
        in capsys.readouterr().err.replace("\n", " ")
    )
    main(command)
    assert [event["step"] for event in Run(tmp_path / "run").manifest["resumed"]] == [101]


def test_a_second_signal_acts_as_ever() -> None:
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt) as raised:
            os.kill(os.getpid(), signal.SIGINT)
    assert not isinstance(raised.value, Stopped)


def test_what_is_ignored_stays_ignored_and_other_threads_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.received is None and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    entered: list[Any] = []
    thread = threading.Thread(target=lambda: entered.append(StopSignals().__enter__()))
    thread.start()
    thread.join()
    assert entered and signal.getsignal(signal.SIGINT) == before


def test_workers_can_send_it_home() -> None:
    again = pickle.loads(pickle.dumps(Stopped("stopped here.", signal.SIGTERM)))
    assert (
        isinstance(again, Stopped)
        and str(again) == "stopped here."
        and again.number == signal.SIGTERM
    )


# --- extending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"train_freq": 7, "gradient_steps": 5}, {"buffer_size": 60}])
def test_a_finished_run_with_its_checkpoint_is_extended(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    given = {"log_every": 50, "checkpoint_every": 40, **given}
    whole = Trainer(small.settings(steps=150, **given), tmp_path / "whole")
    whole.train()
    folder = tmp_path / "run"
    short = small.settings(steps=100, keep_checkpoint=True, **given)
    run = Trainer(short, folder).train()
    assert run.finished and run.has_checkpoint and run.policy().info.steps == 100
    assert run_settings(small.settings(steps=100, **given), folder).has_checkpoint, (
        "asking again removes nothing"
    )
    longer = Trainer(small.settings(steps=150, **given), folder)
    assert longer.step == 100 and not run.finished
    longer.train()
    assert killed_run.sums(longer) == killed_run.sums(whole) and lines(run) == lines(whole.run)
    assert run.manifest["settings"]["steps"] == 150 and run.manifest["extended"] == [
        {"from": 100, "to": 150}
    ]
    assert run.policy().info.steps == 150 and not run.has_checkpoint
    with pytest.raises(
        DamperError,
        match=r"steps was 150, now 200; .* Only a run with a checkpoint \(keep_checkpoint\)",
    ):
        run_settings(small.settings(steps=200, **given), folder)


def test_a_damaged_checkpoint_leaves_a_finished_run_finished(tmp_path: Path) -> None:
    run = Trainer(small.settings(steps=60, keep_checkpoint=True), tmp_path / "run").train()
    for path in (run.path / "checkpoints").glob("step-*.safetensors"):
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(DamperError, match="is intact"),
    ):
        Trainer(small.settings(steps=70), run.path)
    assert run.finished and run.policy().info.steps == 60


def test_a_budget_does_not_shrink(tmp_path: Path) -> None:
    Trainer(small.settings(steps=60, keep_checkpoint=True), tmp_path / "run").train()
    with pytest.raises(DamperError, match=r"other settings: steps was 60, now 50;[^.]*\.$"):
        run_settings(small.settings(steps=50), tmp_path / "run")


# --- looking at an unfinished run -----------------------------------------------------------------


@pytest.mark.parametrize("method", ["damper", "asap"])
def test_an_unfinished_run_is_evaluated_and_exported_as_of_its_newest_checkpoint(
    tmp_path: Path, method: str
) -> None:
    made = small.settings(method=method, steps=150, checkpoint_every=40, log_every=50)
    trainer = Trainer(made, tmp_path / "run", (ask(signal.SIGINT),))
    with pytest.raises(Stopped):
        trainer.train()
    run = Run(tmp_path / "run")
    assert [policy.info.steps for policy in run.policies()] == [101, 101]
    _, rows = actor_params(trainer.learner)
    assert all((run.policy(agent).flat_params == rows[agent]).all() for agent in (0, 1))
    evaluation = damper.evaluate(run, episodes=1)
    assert len(evaluation.records()) == 2 and evaluation.training["steps"] == 101
    evaluation.save(run.path / "evaluation")
    measured = evaluation.records()[1]["sm"]
    assert open_policy(run, agent=1).smoothness["sm"] == pytest.approx(measured)
    Trainer(made, run.path).train()
    assert open_policy(run, agent=1).smoothness is None, "the evaluation was of another policy"
    with pytest.raises(DamperError, match="agent must be 0 to 1"):
        run.policy(2)
