"""A full disk stops a run with a sentence and leaves its last checkpoint whole."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from damper import files
from damper.engine.loop.trainer import Trainer
from damper.engine.run import metrics_log
from damper.engine.run.checkpoint import CheckpointStore
from damper.errors import DamperError
from tests.engine import killed_run, small

SETTINGS: dict[str, Any] = {
    "steps": 200,
    "checkpoint_every": 20,
    "log_every": 30,
    "batch_size": 8,
    "net_arch": (8, 8),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the run ends with when there is room."""
    trainer = Trainer(small.settings(**SETTINGS), tmp_path_factory.mktemp("reference") / "run")
    trainer.train()
    return killed_run.sums(trainer)


class Full:
    """A file on a disk that fills up half-way through a write."""

    def __init__(self, path: Path, mode: str) -> None:
        self.file = open(path, mode)  # noqa: SIM115

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    def write(self, content: Any) -> None:
        self.file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_disk(monkeypatch: pytest.MonkeyPatch, module: Any, after: int) -> None:
    """From the after-th file opened for writing on, the module finds no room."""
    opened = iter(range(1_000_000))

    def opening(path: Path, mode: str) -> Any:
        return open(path, mode) if mode == "rb" or next(opened) < after else Full(path, mode)

    monkeypatch.setattr(module, "open", opening, raising=False)


def check_recovery(folder: Path, expected: dict[str, str]) -> None:
    """The newest checkpoint is whole without a warning; the run goes on to the same end."""
    newest = CheckpointStore(folder / "checkpoints").newest()
    assert newest is not None and newest.facts["step"] > 0
    trainer = Trainer(small.settings(**SETTINGS), folder)
    assert trainer.step == newest.facts["step"]
    trainer.train()
    assert killed_run.sums(trainer) == expected


@pytest.mark.parametrize("after", [6, 7, 8], ids=["rows", "tensors", "facts"])
def test_within_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, str], after: int
) -> None:
    trainer = Trainer(small.settings(**SETTINGS), tmp_path / "run")
    fill_disk(monkeypatch, files, after)
    with pytest.raises(
        DamperError, match=r"the disk is full: .*checkpoints.* what was there before is intact"
    ):
        trainer.train()
    monkeypatch.undo()
    assert trainer.step == 60, "the third checkpoint"
    assert list((tmp_path / "run").rglob("*.tmp")) == [], "what was half written takes no room"
    check_recovery(tmp_path / "run", expected)


def test_within_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, str]
) -> None:
    trainer = Trainer(small.settings(**SETTINGS), tmp_path / "run")
    fill_disk(monkeypatch, metrics_log, 2)
    with pytest.raises(
        DamperError, match=r"the disk is full: .*metrics\.jsonl could not be written"
    ):
        trainer.train()
    monkeypatch.undo()
    assert trainer.step == 90
    check_recovery(tmp_path / "run", expected)
    assert [line["step"] for line in trainer.run.metrics()] == [30, 60, 90, 120, 150, 180, 200]


def test_within_the_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, str]
) -> None:
    trainer = Trainer(small.settings(**SETTINGS), tmp_path / "run")
    fill_disk(monkeypatch, files, 10 * 3 + 1)
    with pytest.raises(DamperError, match=r"the disk is full: .*policies.*agent-0001"):
        trainer.train()
    monkeypatch.undo()
    assert not trainer.run.finished
    check_recovery(tmp_path / "run", expected)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 400 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, expected: dict[str, str]) -> None:
    ballast = small_disk / "ballast"
    trainer = Trainer(small.settings(**SETTINGS), small_disk / "run")

    def take_all(line: dict[str, Any]) -> None:
        if line["step"] == 60:
            room = os.statvfs(small_disk)
            ballast.write_bytes(b"0" * (room.f_bavail * room.f_frsize))

    trainer.metrics_writers = (take_all,)
    with pytest.raises(DamperError, match=r"the disk is full: .* Free some space and start again"):
        trainer.train()
    assert trainer.step in (60, 80)
    ballast.unlink()
    check_recovery(small_disk / "run", expected)
