"""Cores are counted for this process, not for the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from damper.engine.device import cores as module
from damper.engine.device.cores import usable_cores


def test_cores_are_those_that_this_process_may_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(16), raising=False)
    monkeypatch.setattr(module, "QUOTA", tmp_path / "cpu.max")
    assert usable_cores() == 16
    for written, cores in (
        ("max 100000", 16),
        ("400000 100000", 4),
        ("50000 100000", 1),
        ("9900000 100000", 16),
    ):
        (tmp_path / "cpu.max").write_text(written)
        assert usable_cores() == cores
