"""A lock that lets only one process train in a run's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from damper.errors import DamperError
from damper.files import disk_error

LOCK = ".lock"  # the locked file in a run's folder; it stays there, empty


class RunLockedError(DamperError):
    """Another process is training in the folder."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Make a run's folder if needed, and lock it; raises if another process has the lock.

    The system releases the lock when the process dies, however that happens. A new folder in which
    no run was started is removed again.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise RunLockedError(
            f"another process is training in out={str(folder)!r}: wait until it ends, or choose "
            "another folder."
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
