"""CUDA's multi-process service is started for worker processes and stopped after them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from damper.engine.device.multi_process_service import PIPES, multi_process_service

CONTROL = """#!/bin/sh
# Stands for nvidia-cuda-mps-control: a daemon "runs" while there is a file in its pipes' folder.
pipes=${{CUDA_MPS_PIPE_DIRECTORY:-{folder}/usual}}
if [ "$1" = "-d" ]; then
    echo "start $pipes" >> {folder}/log
    {start}
else
    read command
    echo "$command $pipes" >> {folder}/log
    [ -e "$pipes/control" ] || exit 1
    if [ "$command" = quit ]; then rm "$pipes/control"; fi
fi
"""


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, start: str = 'touch "$pipes/control"'
) -> Path:
    control = folder / "bin" / "nvidia-cuda-mps-control"
    control.parent.mkdir()
    control.write_text(CONTROL.format(folder=folder, start=start))
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{control.parent}:{os.environ['PATH']}")
    monkeypatch.delenv(PIPES, raising=False)
    return folder / "log"


def test_one_is_started_for_the_children_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = install(tmp_path, monkeypatch)
    with suppress(ZeroDivisionError), multi_process_service() as shared:
        pipes = Path(os.environ[PIPES])
        assert shared and (pipes / "control").exists()
        raise ZeroDivisionError  # whatever happens in between
    assert log.read_text().splitlines()[1:] == [f"start {pipes}", f"quit {pipes}"]
    assert PIPES not in os.environ and not pipes.exists()


def test_one_that_runs_is_used_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = install(tmp_path, monkeypatch)
    monkeypatch.setenv(PIPES, str(tmp_path))
    (tmp_path / "control").touch()
    with multi_process_service() as shared:
        assert shared and os.environ[PIPES] == str(tmp_path)
    assert log.read_text() == f"get_server_list {tmp_path}\n" and (tmp_path / "control").exists()


def test_where_none_can_be_had_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with multi_process_service(enabled=False) as shared:
        assert not shared
    log = install(tmp_path, monkeypatch, "exit 1")
    with multi_process_service() as shared:
        assert not shared and PIPES not in os.environ
    assert "quit" not in log.read_text()
    monkeypatch.setenv("PATH", str(tmp_path))
    with multi_process_service() as shared:
        assert not shared
