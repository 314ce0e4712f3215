"""Compiled or not, float32 or TF32: measured together, and a mode that is a trap is named."""

from __future__ import annotations

import pytest
import torch

from paper.bench.interleaved_timing import Plan
from paper.bench.modes import in_modes, slower_modes
from paper.bench.result import Measurement
from paper.bench.scaling import scaling
from paper.bench.workloads import ExecutionMode, Subjects, random_transitions
from paper.cli.bench import _mode, _modes
from paper.cli.options.bench import Bench

MS = {
    ("graph", False): 0.987,
    ("compile-graph", False): 2.823,
    ("graph", True): 0.887,
    ("compile-graph", True): 0.216,
}


def measured(mode: ExecutionMode) -> Measurement:
    own = {"backbone": "TD3", "method": "damper", "agents": 5, "ms": MS[mode.mode, mode.tf32]}
    rows = [own, {**own, "method": "plain, SB3", "ms": 1.0 + 9.0 * mode.tf32}]
    return Measurement("scaling", "title", "scope", rows, ("ms",), mode.record())


def test_the_mode_that_is_slower_than_a_plainer_one_is_named() -> None:
    found = in_modes([ExecutionMode("cpu", mode, tf32) for mode, tf32 in MS], measured)
    assert [(row["mode"], row["precision"], row["ms"]) for row in found.rows[::2]] == [
        ("graph", "float32", 0.987),
        ("compile-graph", "float32", 2.823),
        ("graph", "TF32", 0.887),
        ("compile-graph", "TF32", 0.216),
    ]
    assert slower_modes(found) == [
        "TD3, damper, 5 agents: compile-graph in float32 takes 2.82 ms, graph in float32 0.987 ms"
    ]
    assert found.how["mode"] == ["graph", "compile-graph"] * 2


def test_one_mode_stands_as_it_is() -> None:
    found = in_modes([ExecutionMode("cpu", "graph")], measured)
    assert found.rows == measured(ExecutionMode("cpu", "graph")).rows and slower_modes(found) == []


def test_a_gpu_is_looked_at_everywhere() -> None:
    def asked(**options: object) -> list[tuple[str, bool]]:
        return [(mode.mode, mode.tf32) for mode in _modes(Bench(**options))]  # type: ignore[arg-type]

    assert asked(device="cuda") == list(MS)
    assert asked(device="cuda", tf32=True, mode="compile-graph") == [("compile-graph", True)]
    assert asked(device="cuda", tf32=False) == [("graph", False), ("compile-graph", False)]
    assert asked(device="cpu") == [("eager", False)]
    one = _mode(Bench(device="cuda"))
    assert (one.mode, one.tf32) == ("compile-graph", False)
    assert _mode(Bench(device="cuda", tf32=True)).tf32


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("task", "backbone", "sizes"),
    [("Pendulum", "td3", (5,)), ("Hopper", "td3", (1, 5, 35)), ("Hopper", "sac", (1, 5, 35))],
)
def test_compiled_float32_is_not_slower_than_what_is_not_compiled(
    task: str, backbone: str, sizes: tuple[int, ...]
) -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    subjects = Subjects(random_transitions(task, 600), [backbone], ["damper"], sizes)
    plan = Plan(200, 10, device="cuda")
    modes = [ExecutionMode("cuda", mode) for mode in ("graph", "compile-graph")]
    try:
        found = in_modes(modes, lambda mode: scaling(subjects, mode, plan))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert slower_modes(found) == []
