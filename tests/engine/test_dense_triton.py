"""The GPU's kernels compute what the plain layers do: in Triton's interpreter here, compiled where there is a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from damper.engine import dense
from tests.engine import kernels

ROOT = Path(__file__).parents[2]
FULL, ROUNDED = 1e-5, 1e-2


def check(found: dict[str, float], names: Iterable[str], tolerance: float) -> None:
    assert {name.split(":")[0] for name in found} == set(names)
    assert {name: value for name, value in found.items() if not value <= tolerance} == {}
    assert all(value == 0.0 for name, value in found.items() if "gaps" in name)


def test_the_interpreted_kernels_are_the_plain_layers() -> None:
    # Triton reads the variable when it is imported, which other tests may have done already.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "TRITON_INTERPRET": "1",
    }
    command = [sys.executable, "-W", "error", "-m", "tests.engine.kernels"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    check(json.loads(ended.stdout), kernels.CASES, FULL)


@pytest.fixture
def precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def on_the_device(
    networks: int, names: tuple[str, ...], precision: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    torch.set_float32_matmul_precision(precision)
    monkeypatch.setattr(dense, "blank", kernels.spoiled_blank)
    assert dense._kernels(torch.zeros(1, device="cuda")) is not None
    return kernels.differences(kernels.Sizes("cuda", (400, 300), 256, networks), names)


# Networks enough to fill the device, and so few that rows are summed in groups. Every shape is compiled anew, so not
# all that the interpreter tries is tried again.
@pytest.mark.gpu
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(
    ("networks", "names"), [(70, ("heads", "shared", "every second")), (6, ("heads", "shared", "relu"))]
)
def test_kernels_keep_float32(networks: int, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    check(on_the_device(networks, names, "highest", monkeypatch), names, FULL)


@pytest.mark.gpu
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize(("networks", "names"), [(70, ("heads",)), (6, ("shared",))])
def test_kernels_round_where_tf32_is_allowed(
    networks: int, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_the_device(networks, names, "high", monkeypatch)
    check(found, names, ROUNDED)
    assert all(value > FULL for name, value in found.items() if name.endswith("output")), "they do round"
