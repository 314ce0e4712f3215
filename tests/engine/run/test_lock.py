"""One process per run folder, on any platform."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from damper.engine.run.lock import RunLockedError, run_lock
from damper.errors import DamperError
from tests import tiny

PATHS = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder until it is killed."""
    code = f"""
        import time
        from pathlib import Path
        from damper.engine.run.lock import run_lock
        with run_lock(Path({str(folder)!r})):
            print("held", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=PATHS) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_two_processes_do_not_train_in_one_folder_and_a_dead_one_holds_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    with another_process(folder) as other:
        with pytest.raises(
            DamperError, match=r"another process is training in out='.*run': wait until it ends, or"
        ):
            tiny.train(folder, seeds=(0,), steps=60)
        assert [path.name for path in folder.iterdir()] == [".lock"]
        other.kill()
        other.wait()
        assert tiny.train(folder, seeds=(0,), steps=60).finished


def test_it_is_released_at_the_end_also_of_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), run_lock(tmp_path / "run"):
        raise ZeroDivisionError
    with run_lock(tmp_path / "run"), pytest.raises(RunLockedError), run_lock(tmp_path / "run"):
        pass


def test_where_no_run_was_begun_nothing_new_is_left(tmp_path: Path) -> None:
    with run_lock(tmp_path / "new" / "folder" / "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    with run_lock(tmp_path):
        (tmp_path / "manifest.json").write_text("{}")
    assert tmp_path.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(DamperError, match="file could not be written"), run_lock(tmp_path / "file"):
        pass


def test_everything_imports_without_fcntl() -> None:
    code = (
        "import sys; sys.modules['fcntl'] = None; import damper.cli.train, paper.runners.in_process"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=PATHS)
