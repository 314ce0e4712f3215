"""Atomic writes: a file has its new content completely, or its old content, or does not exist."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from damper.errors import DamperError


def write_bytes(path: Path, data: bytes) -> str:
    """Write to a temporary name, sync and rename; returns the SHA-256 of the content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise disk_error(path, error) from error
    return hashlib.sha256(data).hexdigest()


def disk_error(path: Path, error: OSError) -> DamperError:
    """The error for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DamperError(
            f"the disk is full: {path} could not be written; what was there before is intact. "
            "Free some space and start again."
        )
    fix = "choose another out folder"
    return DamperError(f"{path} could not be written ({error.strerror}): {fix}.")


def check_folder(name: str, folder: Path) -> None:
    """Raise, before any work is done, where the setting ``name`` gives no place to write to."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if os.path.exists(place))
    if not nearest.is_dir():
        raise DamperError(f"{name} needs a folder, but {nearest} is a file: choose another place.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        needed = f"{name} needs a writable folder"
        raise DamperError(f"{needed}, but {nearest} is not writable: choose another.")


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> str:
    """Write indented JSON atomically; returns its SHA-256."""
    return write_bytes(path, (json.dumps(value, indent=1, default=_plain) + "\n").encode())


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> str:
    """Write a safetensors file atomically; returns its SHA-256."""
    flat = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    return write_bytes(path, save(flat, dict(metadata) if metadata else None))


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    """Arrays and tensors as JSON values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
