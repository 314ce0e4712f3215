"""Writes are whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from damper.errors import DamperError
from damper.files import file_sha256, write_bytes, write_json, write_tensors


def test_content_and_sum(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    total = write_bytes(path, b"first")
    assert path.read_bytes() == b"first" and total == hashlib.sha256(
        b"first"
    ).hexdigest() == file_sha256(path)
    assert write_bytes(path, b"second") == file_sha256(path)
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.ENOSPC, "the disk is full: .* what was there before is intact"),
        (errno.EACCES, "choose another out folder"),
    ],
)
def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, told: str
) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"before")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("builtins.open" if call == "open" else f"os.{call}", fail)
    with pytest.raises(DamperError, match=told):
        write_bytes(path, b"after")
    monkeypatch.undo()
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"], "no temporary file stays"


def test_a_write_is_synced_before_it_is_renamed_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, name=name, call=original: (order.append(name), call(*a))[1]
        )
    write_bytes(tmp_path / "file", b"content")
    assert order == ["fsync", "replace", "fsync"]


def test_json(tmp_path: Path) -> None:
    value = {"array": np.arange(3), "number": np.float64(0.5), "tensor": torch.ones(2)}
    write_json(tmp_path / "file.json", value)
    read = json.loads((tmp_path / "file.json").read_text())
    expected = {"array": [0, 1, 2], "number": 0.5, "tensor": [1.0, 1.0]}
    assert read == expected
    with pytest.raises(TypeError, match="object has no JSON form"):
        write_json(tmp_path / "other.json", object())
    assert not (tmp_path / "other.json").exists()


def test_tensors(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(4, 6).T,
        "empty": torch.zeros(0, 2),
        "flag": torch.tensor([True]),
        "n": torch.tensor(3),
    }
    write_tensors(tmp_path / "file", tensors, {"update_stats": "kept"})
    read = load_file(tmp_path / "file")
    assert set(read) == set(tensors) and all(
        torch.equal(read[name], tensors[name]) for name in tensors
    )
