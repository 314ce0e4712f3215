"""Eager, compiled and as CUDA graphs, an update is the same update."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from damper.engine.device.cuda_graph import Graphed
from damper.engine.loop.acting import Acting
from damper.engine.update.learner import Learner
from damper.methods import METHODS
from tests.engine import small

MODES = {
    "compiled": {"compile": True, "graph": False},
    "graph": {"compile": False, "graph": True},
    "compiled graph": {"compile": True, "graph": True},
}
METHODS_TRIED = ("plain", "damper", "metabalance", "pave", "l2c2", "asap")
UPDATES = 100
OBS = np.array([[0.6, 0.8, -1.0], [1.0, 0.0, 2.0]], np.float32)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """No test reuses what another has compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def build(backbone: str, method: str, device: str = "cpu", **given: Any) -> Learner:
    made = small.settings(backbone, method, device=device, **{"graph": False, **given})
    return small.learner(made, device=device)


def check_same(ours: Learner, theirs: Learner, tolerance: float) -> None:
    assert set(ours.state()) == set(theirs.state()) and torch.equal(
        ours.acted.cpu(), theirs.acted.cpu()
    )
    for name in ours.state():
        for agent in (0, 1):
            pairs = zip(
                small.pieces(ours, name, agent),
                small.pieces(theirs, name, agent),
                strict=True,
            )
            for a, b in pairs:
                assert (a - b).norm() <= tolerance * b.norm(), name


# --- without a GPU --------------------------------------------------------------------------------


def trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace what is compiled from now on, and run the traces without generating code."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))


def check_traced(backbone: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # In float64, where a rule that divides by a small difference (MGDA) does not blow up the order
    # of sums.
    trace(monkeypatch)
    eager, traced = (
        build(backbone, method, dtype="float64", compile=compiled) for compiled in (False, True)
    )
    for _ in range(10):
        eager.update()
        traced.update()
    check_same(traced, eager, 1e-10)


def test_each_part_of_an_update_is_one_graph_to_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_traced("sac", "metabalance", monkeypatch)  # TD3's are traced below, for several learners


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_every_method_s_update_is_traced(
    backbone: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_traced(backbone, method, monkeypatch)


def test_any_number_of_learners_in_one_process_each_has_its_own_compiled_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace(monkeypatch)
    with torch._dynamo.config.patch(recompile_limit=2):
        for size in (16, 24, 16):
            given = {"batch_size": size, "dtype": "float64"}
            ours, reference = (
                build("td3", "damper", compile=compiled, **given) for compiled in (True, False)
            )
            for learner in (ours, reference):
                Acting(learner).act(OBS)
                for _ in range(4):
                    learner.update()
            check_same(ours, reference, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_compiled_acts_as_the_function_does(backbone: str) -> None:
    eager, compiled = (
        build(backbone, "plain", learning_starts=3),
        build(backbone, "plain", learning_starts=3, compile=True),
    )
    ours_acting, reference = Acting(compiled), Acting(eager)
    for step in range(8):
        for ours, theirs in zip(
            ours_acting.act(OBS * step), reference.act(OBS * step), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    "method",
    ["damper", *(pytest.param(method, marks=pytest.mark.slow) for method in ("plain", "pave"))],
)
def test_compiled_equals_eager(method: str) -> None:
    eager, compiled = build("td3", method), build("td3", method, compile=True)
    for _ in range(UPDATES):
        eager.update()
        compiled.update()
    check_same(compiled, eager, 1e-4)


# --- with one -------------------------------------------------------------------------------------


@pytest.fixture
def full_precision() -> Iterator[None]:
    """TF32 rounds products to ten bits, which no tolerance here would survive."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def check_mode(backbone: str, method: str, mode: str) -> None:
    eager, other = build(backbone, method, "cuda"), build(backbone, method, "cuda", **MODES[mode])
    before = eager.state()["actor"].clone()
    for _ in range(UPDATES):
        eager.update()
        other.update()
    assert not torch.equal(eager.state()["actor"], before)
    assert int(other.state()["updates"]) == UPDATES, "recording leaves no trace"
    check_same(other, eager, 1e-4)


@pytest.mark.gpu
@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("method", METHODS_TRIED)
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_a_graph_learns_what_the_function_does(backbone: str, method: str) -> None:
    check_mode(backbone, method, "graph")


@pytest.mark.gpu
@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize(
    ("backbone", "method", "mode"),
    [
        ("td3", "damper", "compiled"),
        ("sac", "damper", "compiled graph"),
        ("td3", "pave", "compiled graph"),
    ],
)
def test_compiled_learns_what_the_function_does(backbone: str, method: str, mode: str) -> None:
    check_mode(backbone, method, mode)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("mode", ["compiled", "compiled graph"])
@pytest.mark.parametrize("method", METHODS_TRIED)
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_every_method_compiled_learns_what_the_function_does(
    backbone: str, method: str, mode: str
) -> None:
    check_mode(backbone, method, mode)


@pytest.mark.gpu
@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_a_gpu_learns_what_a_cpu_does(backbone: str) -> None:
    cpu, gpu = build(backbone, "damper"), build(backbone, "damper", "cuda", graph=True)
    for learner in (cpu, gpu):
        for _ in range(20):
            learner.update()
    for name in ("actor", "critic", "critic_target"):
        ours, theirs = gpu.state()[name].cpu(), cpu.state()[name]
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm(), name


@pytest.mark.gpu
@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_the_action_graph_acts_as_the_function_does(backbone: str) -> None:
    eager, graphed = (
        build(backbone, "plain", "cuda", graph=graph, learning_starts=5) for graph in (False, True)
    )
    previous, with_graph, without = None, Acting(graphed), Acting(eager)
    for step in range(12):
        for ours, theirs in zip(with_graph.act(OBS * step), without.act(OBS * step), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
        eager.update()
        graphed.update()
        action = with_graph.act(OBS)[1].copy()
        np.testing.assert_allclose(action, without.act(OBS)[1], atol=1e-5)
        assert previous is None or (action != previous).any(), (
            "exploration differs from step to step"
        )
        previous = action
    assert graphed.acted.tolist() == eager.acted.tolist() == [24] * graphed.n_agents


@pytest.mark.gpu
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_each_replay_draws_new_noise_and_moves_on(backbone: str) -> None:
    learner = build(backbone, "damper", "cuda", graph=True)
    count = learner.state()["updates"]
    drawn = torch.zeros(2, 16, 1, device="cuda")

    def draw() -> None:
        drawn.copy_(small.noise(learner, count)["target"])
        count.add_(1)

    graph, seen = Graphed(draw, learner.state), []
    for update in range(4):
        graph()
        seen.append(drawn.clone())
        assert int(count) == update + 1
        assert torch.equal(
            seen[-1], small.noise(learner, torch.tensor(update, device="cuda"))["target"]
        )
    assert all((seen[i] != seen[j]).all() for i in range(4) for j in range(i))
    critics = []
    for _ in range(4):
        learner.update()
        critics.append(learner.state()["critic"].clone())
    assert all((critics[i] != critics[j]).any(1).all() for i in range(4) for j in range(i)), (
        "parameters move"
    )


@pytest.mark.gpu
def test_recording_leaves_the_state_as_it_was() -> None:
    state = {
        "x": torch.arange(3.0, device="cuda"),
        "n": torch.zeros((), dtype=torch.int64, device="cuda"),
    }

    def function() -> torch.Tensor:
        state["n"] += 1
        state["x"] *= 2
        return state["x"] + state["n"]

    graphed = Graphed(function, lambda: state)
    for calls in range(1, 4):
        output = graphed()
        assert int(state["n"]) == calls and state["x"].tolist() == [
            0.0,
            2.0**calls,
            2.0 ** (calls + 1),
        ]
        assert torch.equal(output, state["x"] + calls)


@contextmanager
def no_waiting() -> Iterator[None]:
    """Whatever waits for the device in here raises."""
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("method", METHODS_TRIED)
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_learning_never_waits_for_the_device(backbone: str, method: str, graph: bool) -> None:
    own = {"eta": (0.0, 1.0), "seeds": (0,)} if method == "damper" else {}
    learner = build(backbone, method, "cuda", graph=graph, **own)
    for _ in range(4):
        learner.update()  # set up libraries, record graphs
    with no_waiting():
        for _ in range(4):
            learner.update()
    assert int(learner.state()["updates"]) == 8


@pytest.mark.gpu
def test_acting_and_storing_wait_for_nothing_but_the_actions() -> None:
    learner = build("td3", "damper", "cuda")
    acting, row = Acting(learner), np.zeros(learner.replay.rows.shape[1:], np.float32)
    for _ in range(2):
        acting.act(OBS)
        learner.replay.add(row)
    with no_waiting():
        for _ in range(4):
            acting.start(OBS)
            learner.replay.add(row)
            acting.actions()


@pytest.mark.gpu
def test_the_wait_is_seen_where_there_is_one() -> None:
    x = torch.ones(2, device="cuda")
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        x.sum().item()
