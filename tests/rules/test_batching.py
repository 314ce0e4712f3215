"""Agents never mix: a batch is its members one by one, whoever does the batching."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from damper.rules import RULES, combine, combine_reported, has_memory, reads_loss, settings_of
from tests.rules.references import combined, loss_argument, pairs

each_rule = pytest.mark.parametrize("name", RULES)
AGENTS = 64


def per_agent_settings(name: str) -> dict[str, Tensor]:
    """A different value per agent for every number among the rule's settings, and for the loss."""
    numbers = [key for key, default in settings_of(name).items() if isinstance(default, float)]
    numbers += ["auxiliary_loss"] if reads_loss(name) else []
    return {key: torch.linspace(0.05, 0.95, AGENTS, dtype=torch.float64) for key in numbers}


def nth(settings: dict[str, Tensor], i: int) -> dict[str, float]:
    return {key: float(values[i]) for key, values in settings.items()}


@each_rule
@pytest.mark.parametrize("n", [1, 7, 1000, 4096])
def test_a_batch_is_its_members_bit_for_bit(name: str, n: int) -> None:
    primary, auxiliary = pairs(AGENTS, n, torch.float32)
    settings = per_agent_settings(name)
    batch = combined(name, primary, auxiliary, **settings)
    for i in range(AGENTS):
        assert torch.equal(batch[i], combined(name, primary[i], auxiliary[i], **nth(settings, i)))


@each_rule
def test_a_long_batch_is_its_members_to_rounding(name: str) -> None:
    primary, auxiliary = pairs(AGENTS, 30_000, torch.float32)
    batch = combined(name, primary, auxiliary)
    for i in range(AGENTS):
        single = combined(name, primary[i], auxiliary[i])
        ulp = torch.finfo(torch.float32).eps * single.norm()
        assert (batch[i] - single).norm() <= 4 * ulp


@each_rule
def test_several_leading_axes_and_none(name: str) -> None:
    primary, auxiliary = pairs(6, 5)
    flat = combined(name, primary, auxiliary)
    assert torch.equal(
        combined(name, primary.view(2, 3, 5), auxiliary.view(2, 3, 5)), flat.view(2, 3, 5)
    )
    assert combined(name, primary[:0], auxiliary[:0]).shape == (0, 5)


@each_rule
def test_settings_broadcast_over_leading_axes(name: str) -> None:
    primary, auxiliary = (x.view(2, 3, 5) for x in pairs(6, 5))
    for key in per_agent_settings(name):
        for shape in [(), (3,), (1, 3), (2, 1), (2, 3)]:
            values = torch.rand(
                shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
            )
            batch = combined(name, primary, auxiliary, **{key: values})
            for i, j in [(0, 0), (1, 2)]:
                value = float(values.expand(2, 3)[i, j])
                assert torch.equal(
                    batch[i, j], combined(name, primary[i, j], auxiliary[i, j], **{key: value})
                )


@each_rule
def test_vmap(name: str) -> None:
    primary, auxiliary = pairs(AGENTS, 33)
    settings = per_agent_settings(name)

    def single(g_R: Tensor, g_T: Tensor, own: dict[str, Tensor]) -> Tensor:
        return combined(name, g_R, g_T, **own)

    mapped = torch.func.vmap(single)(primary, auxiliary, settings)
    torch.testing.assert_close(
        mapped, combined(name, primary, auxiliary, **settings), rtol=1e-13, atol=1e-13
    )


def apply_all(
    primary: Tensor, auxiliary: Tensor, eta: Tensor, states: dict[str, Any]
) -> dict[str, Any]:
    """Every rule of the registry once, with η per agent and memory where there is one."""
    out: dict[str, Any] = {}
    for name, rule in RULES.items():
        settings: dict[str, Any] = {"eta": eta} if "eta" in settings_of(name) else {}
        settings |= {"auxiliary_loss": eta / 10} if reads_loss(name) else {}
        if has_memory(name):
            settings["state"] = states.get(name)
        out[name] = rule(primary, auxiliary, **settings)
    return out


def test_every_rule_traces_as_one_graph() -> None:
    primary, auxiliary = pairs(8, 50)
    eta = torch.linspace(0, 1, 8, dtype=torch.float64)
    states = {
        name: out[1]
        for name, out in apply_all(primary, auxiliary, eta, {}).items()
        if has_memory(name)
    }
    traced = torch.compile(apply_all, fullgraph=True, backend="aot_eager")(
        primary, auxiliary.flip(0), eta, states
    )
    eager = apply_all(primary, auxiliary.flip(0), eta, states)
    torch.testing.assert_close(traced, eager, rtol=1e-13, atol=1e-13)


def test_a_report_traces_as_one_graph() -> None:
    primary, auxiliary = pairs(8, 50)
    loss = torch.linspace(0, 0.1, 8, dtype=torch.float64)
    own = lambda primary, auxiliary: primary + auxiliary  # noqa: E731
    for rule in ("damper", "damper-fading", "bloop", own):
        traced = torch.compile(combine_reported, fullgraph=True, backend="eager")
        arguments = (rule, primary, auxiliary)
        expected = combine_reported(*arguments, auxiliary_loss=loss)[0]
        assert torch.equal(traced(*arguments, auxiliary_loss=loss)[0], expected)


def test_compiled_code_agrees() -> None:
    # One compilation takes seconds, so only the paper's rule goes all the way to machine code.
    primary, auxiliary = pairs(8, 50, torch.float32)
    compiled = torch.compile(combine, fullgraph=True)
    torch.testing.assert_close(
        compiled(primary, auxiliary, 0.5), combine(primary, auxiliary, 0.5), rtol=1e-6, atol=1e-6
    )


@each_rule
def test_rules_are_pure(name: str) -> None:
    primary, auxiliary = pairs(3, 5)
    before = primary.clone(), auxiliary.clone()
    first, second = combined(name, primary, auxiliary), combined(name, primary, auxiliary)
    assert torch.equal(first, second)
    assert torch.equal(primary, before[0])
    assert torch.equal(auxiliary, before[1])
    assert first.data_ptr() != primary.data_ptr()


def test_each_rule_has_compiled_versions_of_its_own() -> None:
    # Dynamo keeps eight versions of one code object, and beyond them fullgraph=True is an error.
    torch._dynamo.reset()
    g_R, g_T = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    rules = {name: rule for name, rule in RULES.items() if hasattr(rule, "explained")}
    assert len(rules) > torch._dynamo.config.recompile_limit
    for name, rule in rules.items():
        loss = loss_argument(name)
        for function in (rule, rule.explained):
            compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=False)
            torch.testing.assert_close(compiled(g_R, g_T, **loss), function(g_R, g_T, **loss))
    torch._dynamo.reset()
