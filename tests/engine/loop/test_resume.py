"""A run killed anywhere and started again ends bit for bit like one never killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from damper.engine.gradients import Objectives
from damper.engine.loop.trainer import Trainer
from damper.engine.run.folder import Run
from damper.engine.train import run_settings
from damper.engine.update import diagnostics
from damper.errors import DamperError
from tests.engine import killed_run, small
from tests.engine.diary import Diary

ROOT = Path(__file__).parents[3]
TIMES = ("seconds", "steps_per_second")


def command(folder: Path, case: str, *kill: object) -> list[str]:
    return [sys.executable, "-m", "tests.engine.killed_run", str(folder), case, *map(str, kill)]


def child(folder: Path, case: str, *kill: object) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
    }
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command(folder, case, *kill), cwd=ROOT, env=environment, **pipes)


def finish(folder: Path, case: str) -> dict[str, str] | None:
    """Start the run without a kill; the sums it ends with, None if it was finished already."""
    process = child(folder, case)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "damaged" not in err, "a kill never damages a checkpoint"
    result: dict[str, str] | None = json.loads(out)
    return result


def contents(folder: Path) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """Policies as bytes, and metrics without the clock's."""
    run = Run(folder)
    policies = {path.name: path.read_bytes() for path in (folder / "policies").iterdir()}
    return policies, [{k: v for k, v in line.items() if k not in TIMES} for line in run.metrics()]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each case's sums and contents when it is not killed, trained once in this process."""
    made: dict[str, Any] = {}

    def reference(case: str) -> Any:
        if case not in made:
            folder = tmp_path_factory.mktemp(case) / "run"
            trainer = Trainer(killed_run.settings(case), folder)
            trainer.train()
            made[case] = killed_run.sums(trainer), contents(folder)
        return made[case]

    return reference


def check_end(folder: Path, case: str, ended: dict[str, str] | None, reference: Any) -> None:
    expected, kept = reference(case)
    assert ended in (expected, None)
    assert contents(folder) == kept
    assert not (folder / "checkpoints").exists() and list(folder.rglob("*.tmp")) == []


def check_kills(folder: Path, case: str, kills: list[tuple[str, int]], reference: Any) -> None:
    for kill in kills:
        process = child(folder, case, *kill)
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"{kill} was never reached: {err}"
    check_end(folder, case, finish(folder, case), reference)


def test_killed_in_the_first_write_between_steps_and_within_a_checkpoint(
    tmp_path: Path, references: Any
) -> None:
    check_kills(tmp_path / "run", "td3", [("replace", 1), ("step", 233), ("file", 6)], references)
    assert [event["step"] for event in Run(tmp_path / "run").manifest["resumed"]] == [200, 250]


def test_killed_within_a_line_of_metrics(tmp_path: Path, references: Any) -> None:
    check_kills(tmp_path / "run", "sac", [("line", 2)], references)
    # At step 140 a block of updates has just been run.
    assert [event["step"] for event in Run(tmp_path / "run").manifest["resumed"]] == [140]


def test_checkpoints_and_logs_do_not_change_what_is_learned(
    tmp_path: Path, references: Any
) -> None:
    expected, (policies, _) = references("sac")
    given = {
        **killed_run.COMMON,
        **killed_run.CASES["sac"],
        "checkpoint_every": 0,
        "log_every": 250,
    }
    trainer = Trainer(small.settings(**given), tmp_path / "run")
    trainer.train()
    ours, theirs = killed_run.sums(trainer), dict(expected)
    for name in ("diagnostics", "diagnosed"):  # sums since the last line
        ours.pop(name)
        theirs.pop(name)
    assert ours == theirs
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "run" / "policies").iterdir()
    } == policies


def stopped(folder: Path, **given: Any) -> Any:
    """The settings of a run that was interrupted after its second checkpoint."""
    made = small.settings(steps=150, checkpoint_every=40, **given)
    killed_run.interrupt(made, folder, 100)
    return made


def test_envpool_goes_on_with_fresh_episodes_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("envpool")
    trainer = Trainer(stopped(tmp_path / "run", backend="envpool", env_threads=1), tmp_path / "run")
    assert trainer.step == 80
    run = trainer.train()
    assert run.finished and run.manifest["resumed"] == [
        {"step": 80, "environments": "fresh episodes"}
    ]
    first = trainer.learner.replay.rows[:, :, -1]
    assert first.nonzero().tolist() == [[0, 0], [0, 1], [80, 0], [80, 1]], (
        "the new episode has no predecessor"
    )


def test_an_environment_that_cannot_be_replayed_goes_on_with_fresh_episodes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = replace(
        small.settings(steps=150, checkpoint_every=40), env=Diary
    )  # it counts its episodes
    killed_run.interrupt(made, tmp_path / "run", 100)
    for step in (80, 120):
        trainer = Trainer(made, tmp_path / "run")
        assert (
            trainer.step == step and trainer.episodes.first.all() and (trainer.obs[:, 2] == 0).all()
        )
        assert (
            "continues with fresh episodes, not bit for bit: env='Diary' must draw all"
            in caplog.text
        )
        caplog.clear()
        if step == 80:
            trainer.pool.close()
            killed_run.interrupt(made, tmp_path / "run", 130)
    assert len({*trainer.obs[:, 0], *made.seeds}) == 4, "their seeds are new ones"
    run = trainer.train()
    assert run.finished and {event["environments"] for event in run.manifest["resumed"]} == {
        "fresh episodes"
    }
    first = trainer.learner.replay.rows[:, 0, -1].bool()
    assert bool(first[80]) and bool(first[120])
    rows = trainer.learner.replay.rows[:, 0]
    assert ((rows[1:, 2] == rows[:-1, 2] + 1) | first[1:]).all(), (
        "steps of one episode follow each other"
    )


def test_a_checkpoint_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stopped(tmp_path / "run")
    monkeypatch.setattr("damper.engine.networks.agent_networks.ALIGNMENT", 64)
    with pytest.raises(
        DamperError, match="must be from this version of damper, but its actor does not fit"
    ):
        Trainer(made, tmp_path / "run")


def test_a_version_that_logs_more_goes_on_with_fresh_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stopped(tmp_path / "run")  # at step 80, 30 steps after the last line
    primary = Objectives.primary_loss

    def with_size(self, given, policy, critic):  # type: ignore[no-untyped-def]
        loss, logs = primary(self, given, policy, critic)
        return loss, {**logs, "action_size": policy(given.batch.obs).abs().mean((-2, -1))}

    monkeypatch.setattr(Objectives, "primary_loss", with_size)
    monkeypatch.setattr(
        diagnostics, "ACTOR_DIAGNOSTICS", (*diagnostics.ACTOR_DIAGNOSTICS, "action_size")
    )
    trainer = Trainer(made, tmp_path / "run")
    assert trainer.step == 80
    assert all(not tensor.any() for tensor in trainer.learner.diagnostics.state().values())
    *_, line = trainer.train().metrics()
    assert line["step"] == 150 and all(0 < size < 1 for size in line["action_size"])


def test_a_version_that_logs_something_else_goes_on_with_fresh_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stopped(tmp_path / "run")
    (path,) = (tmp_path / "run" / "checkpoints").glob("*80.json")
    assert json.loads(path.read_text())["content"]["facts"]["diagnostics"] == [
        "critic_loss",
        "actor_loss",
    ]
    monkeypatch.setattr(diagnostics, "ACTOR_DIAGNOSTICS", ("other_loss",))
    sums = Trainer(made, tmp_path / "run").learner.diagnostics.state()
    assert all(not tensor.any() for tensor in sums.values()), "as many rows, but other ones"


def test_an_environment_registered_otherwise_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stopped(tmp_path / "run")
    spec = gymnasium.registry["Pendulum-v1"]
    monkeypatch.setitem(gymnasium.registry, "Pendulum-v1", replace(spec, max_episode_steps=30))
    with pytest.raises(
        DamperError, match="another environment: max_episode_steps of Pendulum-v1 was 200, now 30"
    ):
        run_settings(first, tmp_path / "run", progress=False)
    monkeypatch.setitem(gymnasium.registry, "Pendulum-v1", spec)
    assert run_settings(first, tmp_path / "run", progress=False).finished


def test_a_run_tells_which_versions_and_machine_went_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stopped(tmp_path / "run")
    monkeypatch.setattr("damper.engine.loop.trainer.versions", lambda: {"gymnasium": "9.9"})
    monkeypatch.setattr("damper.engine.loop.trainer.hardware", lambda device: {"cpu": "another"})
    run_settings(first, tmp_path / "run", progress=False)
    (event,) = Run(tmp_path / "run").manifest["resumed"]
    assert event["versions"] == {"gymnasium": "9.9"} and event["hardware"] == {"cpu": "another"}
    assert "source" not in event


def test_a_damaged_checkpoint_costs_only_what_came_after_the_one_before(tmp_path: Path) -> None:
    whole = Trainer(small.settings(steps=150), tmp_path / "whole")
    whole.train()
    made = stopped(tmp_path / "run")
    newest = tmp_path / "run" / "checkpoints" / "step-000000000080.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="checkpoint step-000000000080 is damaged"):
        trainer = Trainer(made, tmp_path / "run")
    assert trainer.step == 40
    trainer.train()
    assert killed_run.sums(trainer) == killed_run.sums(whole)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["replace", "fsync", "file", "unlink"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 7])
def test_killed_at_a_call_that_touches_the_disk(
    tmp_path: Path, references: Any, call: str, number: int
) -> None:
    check_kills(tmp_path / "run", "often", [(call, number), (call, 11 * number)], references)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 8))
def test_killed_while_finishing(tmp_path: Path, references: Any, number: int) -> None:
    """The last writes: four policies, then the manifest."""
    before = 600 // 50 * 3 + 1  # rows, tensors and facts of each checkpoint, and the first manifest
    kills = [("replace", before + number)] if number <= 5 else [("step", 600), ("replace", number)]
    check_kills(tmp_path / "run", "td3", kills, references)


def newest_step(folder: Path) -> int:
    steps = [
        int(path.stem.removeprefix("step-")) for path in folder.glob("checkpoints/step-*.json")
    ]
    return max(steps, default=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_at_random_moments(tmp_path: Path, references: Any, seed: int) -> None:
    moments, case, folder = random.Random(seed), ("td3", "sac")[seed % 2], tmp_path / "run"
    last = killed_run.settings(case).steps * 3 // 4
    for passed in sorted(moments.randrange(last) for _ in range(3)):
        process = child(folder, case)
        while newest_step(folder) < passed and process.poll() is None:
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it was still running"
    check_end(folder, case, finish(folder, case), references)
