"""On a GPU: no rule waits for the device, and a captured graph replays what eager code computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

import damper
from damper.rules import RULES, combine_reported, has_memory, reads_loss, settings_of
from tests.rules.references import loss_argument, pairs

# The detector of waits warns, when switched on, that it may miss some.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]
AGENTS, N = 16, 1000


@contextmanager
def no_waiting() -> Iterator[None]:
    """Any wait for the device in here is an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def on_device(seed: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    primary, auxiliary = pairs(AGENTS, N, dtype, seed)
    return primary.cuda(), auxiliary.cuda()


def with_settings(name: str) -> dict[str, Any]:
    """η and the auxiliary loss per agent on the device; everything else by default."""
    values = torch.linspace(0, 1, AGENTS, device="cuda")
    settings = {"eta": values} if "eta" in settings_of(name) else {}
    return settings | ({"auxiliary_loss": values / 10} if reads_loss(name) else {})


def capture(function: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Warm up on a side stream, then record; recording itself must not wait for the device."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), no_waiting():
        out = function()
    return graph, out


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_captured_rule_replays_eager_code(name: str, dtype: torch.dtype) -> None:
    primary, auxiliary = on_device(0, dtype)
    settings = with_settings(name)
    if has_memory(name):
        settings["state"] = tree_map(torch.clone, RULES[name](primary, auxiliary)[1])
    graph, out = capture(lambda: RULES[name](primary, auxiliary, **settings))
    for seed in (1, 2):
        new = on_device(seed, dtype)
        primary.copy_(new[0])
        auxiliary.copy_(new[1])
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(out, RULES[name](*new, **settings), rtol=0, atol=0)


def test_captured_combine_and_report() -> None:
    primary, auxiliary = on_device(0)
    graph, (g, report) = capture(lambda: combine_reported("damper", primary, auxiliary, eta=0.5))
    other, g_too = capture(lambda: damper.combine(primary, auxiliary, 0.5))
    new = on_device(1)
    primary.copy_(new[0])
    auxiliary.copy_(new[1])
    graph.replay()
    other.replay()
    torch.cuda.synchronize()
    expected, expected_report = combine_reported("damper", *new, eta=0.5)
    assert torch.equal(g, expected)
    assert torch.equal(g_too, expected)
    for value, wanted in zip(report[:-1], expected_report[:-1], strict=True):
        assert torch.equal(value, wanted)


@pytest.mark.parametrize("name", [name for name in RULES if has_memory(name)])
def test_memory_runs_on_inside_the_graph(name: str) -> None:
    primary, auxiliary = on_device(0)
    eager = RULES[name](primary, auxiliary)[1]
    state = tree_map(torch.clone, eager)

    def step() -> Tensor:
        combined, new = RULES[name](primary, auxiliary, state)
        tree_map(lambda old, value: old.copy_(value), state, new)
        return combined

    graph, combined = capture(step)
    tree_map(lambda old, value: old.copy_(value), state, eager)
    for seed in (1, 2, 3):
        new = on_device(seed)
        primary.copy_(new[0])
        auxiliary.copy_(new[1])
        graph.replay()
        torch.cuda.synchronize()
        expected, eager = RULES[name](*new, eager)
        torch.testing.assert_close((combined, state), (expected, eager), rtol=0, atol=0)


@pytest.mark.parametrize("name", RULES)
def test_eager_rules_do_not_wait(name: str) -> None:
    primary, auxiliary = on_device(0)
    settings = with_settings(name)
    with no_waiting():
        combine_reported(name, primary, auxiliary, **settings)


def test_settings_left_on_the_cpu_do_not_wait() -> None:
    primary, auxiliary = on_device(0)
    eta = torch.linspace(0, 1, AGENTS)
    with no_waiting():
        g = damper.combine(primary, auxiliary, eta)
        damper.combine(primary, auxiliary, torch.tensor(0.5))
    assert torch.equal(g, damper.combine(primary, auxiliary, eta.cuda()))


@pytest.mark.parametrize("name", RULES)
def test_the_gpu_agrees_with_the_cpu(name: str) -> None:
    primary, auxiliary = pairs(AGENTS, N, torch.float32)
    device = RULES[name](primary.cuda(), auxiliary.cuda(), **loss_argument(name))
    host = RULES[name](primary, auxiliary, **loss_argument(name))
    g, expected = (device[0].cpu(), host[0]) if has_memory(name) else (device.cpu(), host)
    assert ((g - expected).norm(dim=-1) <= 1e-6 * expected.norm(dim=-1)).all()


@pytest.mark.parametrize("rule", ["damper", "damper-fading"])
def test_backward_does_not_wait(rule: str) -> None:
    layer = torch.nn.Linear(4, 3, device="cuda")
    x = torch.ones(8, 4, device="cuda")
    losses = layer(x).square().mean(), (layer(x) - layer(2 * x)).square().mean()
    with no_waiting():
        report = damper.backward(*losses, layer.parameters(), rule=rule)
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all()
        for parameter in layer.parameters()
    )
    assert report.weight.isfinite()
