"""A run leaves the process as it was, also if it fails, and refuses early what cannot work."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from damper.engine.envs.gymnasium_pool import GymnasiumPool
from damper.engine.loop import memory
from damper.engine.loop import trainer as trainer_module
from damper.engine.loop.memory import PEAK_FACTOR, check_memory, needed_memory
from damper.engine.loop.trainer import Trainer
from damper.engine.settings import resolve
from damper.engine.train import run_settings
from damper.engine.update.learner import Learner
from damper.errors import DamperError
from tests import tiny
from tests.engine import small

CHANGING = {"strength": 1.0}


class Noted(gymnasium.Env[Any, Any]):
    """An environment that says whether it is open; the third one cannot be made."""

    made: list[Noted]
    most = 99
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self.open = True
        if len(self.made) == self.most:
            raise OSError("no more of these")
        self.made.append(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        self.open = False


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noted, "made", [], raising=False)


# --- the process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [False, True])
def test_tf32_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, before: bool
) -> None:
    matmul = torch.backends.cuda.matmul
    request.addfinalizer(partial(setattr, matmul, "allow_tf32", matmul.allow_tf32))
    matmul.allow_tf32 = before
    seen: list[bool] = []
    update = Learner.update
    monkeypatch.setattr(
        Learner, "update", lambda self: (seen.append(matmul.allow_tf32), update(self))[1]
    )
    run_settings(small.settings(steps=30, tf32=not before), tmp_path / "run", progress=False)
    assert set(seen) == {not before} and matmul.allow_tf32 == before


def test_the_newer_switch_of_tf32_is_as_it_was(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("this PyTorch has the older switch alone")
    request.addfinalizer(partial(setattr, matmul, "allow_tf32", matmul.allow_tf32))
    matmul.fp32_precision = "tf32"
    run_settings(small.settings(steps=30), tmp_path / "run", progress=False)
    assert matmul.fp32_precision == "tf32"


@pytest.mark.gpu
def test_the_current_device_is_as_it_was(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    torch.cuda.set_device(0)
    tiny.train(tmp_path / "run", steps=60, device="cuda:1")
    assert torch.cuda.current_device() == 0


# --- environments ---------------------------------------------------------------------------------


def test_environments_are_closed_where_a_pool_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Noted, "most", 2)
    with pytest.raises(OSError, match="no more of these"):
        GymnasiumPool(Noted, [0, 1, 2])
    assert [env.open for env in Noted.made] == [False, False]
    shared = Noted.made[0]
    shared.open = True
    with pytest.raises(DamperError, match="got the same one twice"):
        GymnasiumPool(lambda: shared, [0, 1])
    assert not shared.open


def test_one_that_does_not_close_keeps_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = GymnasiumPool(Noted, [0, 1, 2])
    monkeypatch.setattr(pool.envs[1], "close", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pool.close()
    assert [env.open for env in Noted.made] == [False, True, False]


@pytest.mark.parametrize("part", ["Learner", "open_run"])
def test_environments_are_closed_where_a_run_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(trainer_module, part, fail)
    with pytest.raises(MemoryError):
        Trainer(resolve(Noted, steps=30, seeds=2, net_arch=(8,)), tmp_path / "run")
    assert len(Noted.made) == 2 and not any(env.open for env in Noted.made)


# --- TensorBoard ----------------------------------------------------------------------------------


def test_tensorboard_is_purged_where_a_run_goes_on_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = pytest.importorskip("torch.utils.tensorboard")
    made: list[tuple[int, list[bool]]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            self.closed: list[bool] = []
            made.append((purge_step, self.closed))

        def add_scalar(self, *_: Any) -> None: ...
        def flush(self) -> None: ...

        def close(self) -> None:
            self.closed.append(True)

    monkeypatch.setattr(writers, "SummaryWriter", Writer)
    write = trainer_module.MetricsLog.write

    def killed(log: Any, line: dict[str, Any]) -> None:
        if line["step"] == 300:
            raise ZeroDivisionError
        write(log, line)

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module.MetricsLog, "write", killed)
        with pytest.raises(ZeroDivisionError):
            tiny.train(tmp_path / "run", tensorboard=True)
    tiny.train(tmp_path / "run", tensorboard=True)
    assert made == [(1, [True]), (201, [True])]


def test_a_missing_tensorboard_is_told_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(DamperError, match="tensorboard needs its package"):
        tiny.train(tmp_path / "run", tensorboard=True)
    assert list(tmp_path.iterdir()) == []


# --- devices and memory ---------------------------------------------------------------------------


def test_devices_may_be_torch_s_and_have_one_name() -> None:
    assert [
        resolve("Pendulum", device=device).device for device in (torch.device("cpu"), "cpu:0")
    ] == ["cpu", "cpu"]


@pytest.mark.parametrize("device", ["mps", "meta", torch.device("mps"), 1.5, None])
def test_devices_that_cannot_work_are_refused(device: Any) -> None:
    with pytest.raises(DamperError, match="device must be 'cpu' or 'cuda', but "):
        resolve("Pendulum", device=device)


@pytest.mark.parametrize("page", ["scaling", "scaling-35"])
def test_no_measured_peak_is_beyond_what_the_memory_check_counts(page: str) -> None:
    rows = json.loads((Path(__file__).parents[3] / "docs/bench/h200" / f"{page}.json").read_text())[
        "rows"
    ]
    assert rows
    for backbone, n_agents, peak in {
        (row["backbone"], row["agents"], row["peak MiB"]) for row in rows
    }:
        methods = [
            row["method"]
            for row in rows
            if (row["backbone"], row["agents"]) == (backbone, n_agents)
        ]
        made = [
            resolve("Hopper", backbone.lower(), method, range(n_agents), 2000, "authors")
            for method in methods
        ]
        # The peak is of all learners together: of the others' share, their state and replay are
        # certain.
        least = [needed_memory(one, 11, 3) for one in made]
        for one, own in zip(made, least, strict=True):
            assert peak * 2**20 - (sum(least) - own) <= needed_memory(one, 11, 3, PEAK_FACTOR)


def test_the_memory_check_counts_the_peak_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    made = resolve("Hopper", seeds=10, protocol="pave")
    peak = needed_memory(made, 11, 3, PEAK_FACTOR)
    monkeypatch.setattr(memory, "memory_available", lambda device: int(peak / 0.96))
    check_memory(made, 11, 3)  # on a CPU nothing comes on top
    with pytest.raises(DamperError, match=r"10 agents needs about .* GiB on cuda"):
        check_memory(replace(made, device="cuda"), 11, 3)


# --- compilation ----------------------------------------------------------------------------------


def reads_state(x: torch.Tensor) -> torch.Tensor:
    return CHANGING["strength"] * x


def test_a_compiled_update_sees_a_python_value_that_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(CHANGING, "strength", 1.0)
    compiled = small.learner(small.settings(compile=True)).compiled(reads_state)
    assert compiled(torch.ones(1)).item() == 1.0
    monkeypatch.setitem(CHANGING, "strength", 2.0)
    assert compiled(torch.ones(1)).item() == 2.0
