"""Populations side by side train what they would train alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damper.engine.envs.envpool_pool import EnvPoolPool, usable_cores
from damper.engine.loop.side_by_side import split_threads, train_side_by_side
from damper.engine.loop.trainer import Trainer
from damper.engine.run.folder import Run
from damper.engine.settings import Settings, resolve
from damper.engine.train import run_settings
from damper.errors import DamperError

pytest.importorskip("envpool")

TINY = {"net_arch": (8, 8), "batch_size": 8, "learning_starts": 10, "buffer_size": 500, "log_every": 50}


def settings(method: str, seeds: tuple[int, ...] = (0, 1), steps: int = 260, **given: Any) -> Settings:
    """Pendulum's episodes have 200 steps, so that some end on the way."""
    own = {"envs": "envpool", "env_threads": 1, "checkpoint_every": 0, **TINY, **given}
    return resolve("Pendulum", "td3", method, seeds, steps, **own)


def lines(run: Run) -> list[dict[str, Any]]:
    """The log without its times."""
    told = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if "second" not in name} for line in told]


def actions(run: Run) -> list[Any]:
    obs = np.linspace(-1.0, 1.0, 30).reshape(10, 3).astype(np.float32)
    return [run.policy(agent)(obs).tolist() for agent in range(len(run.agents))]


def test_each_run_is_the_one_it_would_have_been_alone(tmp_path: Path) -> None:
    wanted = [
        settings("plain"),
        settings("damper", (2, 0, 5), eta=0.5),
        settings("caps", (1,), steps=120),  # done before the others
    ]
    together = train_side_by_side([(one, tmp_path / f"together-{i}") for i, one in enumerate(wanted)], progress=False)
    for i, (one, run) in enumerate(zip(wanted, together, strict=True)):
        alone = run_settings(one, tmp_path / f"alone-{i}", progress=False)
        assert run.finished and run.manifest["settings"] == alone.manifest["settings"]
        assert lines(run) == lines(alone) and actions(run) == actions(alone)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_streams_do_not_get_in_each_other_s_way(tmp_path: Path, compile: bool) -> None:
    own = {"device": "cuda", "compile": compile, "steps": 220, "env_threads": 4}
    own |= {"net_arch": (256, 256), "batch_size": 256}  # large enough for the matrix library to need a workspace
    wanted = [
        settings(method, seeds, **own) for method, seeds in (("plain", (0, 1)), ("damper", (2,)), ("pave", (3, 4)))
    ]
    together = train_side_by_side([(one, tmp_path / f"together-{i}") for i, one in enumerate(wanted)], progress=False)
    for i, (one, run) in enumerate(zip(wanted, together, strict=True)):
        alone = run_settings(one, tmp_path / f"alone-{i}", progress=False)
        assert lines(run) == lines(alone) and actions(run) == actions(alone)


def test_what_was_killed_goes_on_and_what_is_finished_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(settings(method, checkpoint_every=100), tmp_path / method) for method in ("plain", "damper")]
    finished = train_side_by_side(runs[:1], progress=False)[0]
    before = (finished.path / "metrics.jsonl").read_bytes()
    receive = Trainer.receive

    def killed(self: Trainer, transition: Any) -> None:
        if self.step == 150:
            raise KeyboardInterrupt
        receive(self, transition)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "receive", killed)
        with pytest.raises(KeyboardInterrupt):
            train_side_by_side(runs, progress=False)
    assert not Run(tmp_path / "damper").finished
    first, second = train_side_by_side(runs, progress=False)
    assert (first.path / "metrics.jsonl").read_bytes() == before
    assert second.finished and second.manifest["resumed"] == [{"step": 100, "environments": "fresh episodes"}]
    assert [line["step"] for line in lines(second)] == [50, 100, 150, 200, 250, 260]
    assert train_side_by_side(runs, progress=False)[1].manifest == second.manifest


def test_what_was_killed_after_its_last_step_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(settings(method, steps=100, checkpoint_every=50), tmp_path / method) for method in ("plain", "damper")]

    def killed(self: Trainer) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            train_side_by_side(runs, progress=False)
    for run, (one, _) in zip(train_side_by_side(runs, progress=False), runs, strict=True):
        assert run.finished and len(actions(run)) == len(one.agents())


def test_one_group_learns_while_the_other_one_s_environments_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    for name in ("send", "receive"):
        original = getattr(EnvPoolPool, name)
        monkeypatch.setattr(
            EnvPoolPool,
            name,
            lambda self, *given, name=name, call=original: (order.append(f"{name} {self.size}"), call(self, *given))[1],
        )
    methods = {"plain": (0, 1), "damper": (0, 1, 2), "caps": (5, 6)}
    runs = [(settings(method, seeds, steps=30), tmp_path / method) for method, seeds in methods.items()]
    told: list[int] = []
    closed: list[int] = []
    monkeypatch.setattr(EnvPoolPool, "close", lambda self: closed.append(self.size))
    train_side_by_side(runs, progress=False, listeners=(lambda line: told.append(line["step"]),))
    assert closed == [4, 3]
    # First and third share a pool of four, the second one has three.
    assert order[:6] == ["send 4", "send 3", "receive 4", "send 4", "receive 3", "send 3"]
    assert len(order) == 2 * 2 * 30 and told == [30, 30, 30]


def test_two_pools_share_the_threads(tmp_path: Path) -> None:
    assert [split_threads(count) for count in (9, 8, 1)] == [(5, 4), (4, 4), (1, 1)]
    assert sum(split_threads(None)) >= max(2, usable_cores())
    with pytest.raises(DamperError, match="threads must be at least 1, got 0"):
        train_side_by_side([(settings(m, env_threads=0), tmp_path / m) for m in ("plain", "caps")], progress=False)


def test_runs_that_cannot_share_a_pool_are_refused(tmp_path: Path) -> None:
    for other, words in (
        (settings("caps", env_threads=2), "env_threads must be the same for runs side by side, but 1 and 2 were"),
        (settings("caps", dtype="float64"), "dtype must be the same"),
    ):
        with pytest.raises(DamperError, match=words):
            train_side_by_side([(settings("plain"), tmp_path / "a"), (other, tmp_path / "b")])
    with pytest.raises(DamperError, match="backend must be 'envpool' for runs side by side, but 'gymnasium' was given"):
        train_side_by_side([(settings("plain", envs="gymnasium", env_threads=None), tmp_path / "a")])
    assert list(tmp_path.iterdir()) == []


def test_each_run_says_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_side_by_side([(settings(m, steps=60), tmp_path / m) for m in ("plain", "caps")])
    said = capsys.readouterr().out.replace("\n", " ")
    assert "td3 plain: step 60 of 60" in said and "td3 caps: step 60 of 60" in said
