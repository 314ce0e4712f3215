"""One process per run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from damper.engine.run.files import disk_error
from damper.errors import DamperError

LOCK = ".lock"  # the file inside a run's folder that is locked; it stays there, empty


class RunLockedError(DamperError):
    """Another process is training in the folder."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold a run's folder for one process alone, made if need be; ``RunLockedError`` if another one has it.

    The system releases it when the process dies, however that happens. A new folder in which no run was begun is
    removed again.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise RunLockedError(
            f"out={str(folder)!r} is being trained by another process: wait until it ends, or choose another folder."
        ) from error
    except OSError as error:
        raise disk_error(folder, error) from error
    try:
        yield
    finally:
        if not (folder / "manifest.json").exists():
            with suppress(OSError):
                (folder / LOCK).unlink()
            for path in new:
                with suppress(OSError):
                    path.rmdir()
        lock.release()
