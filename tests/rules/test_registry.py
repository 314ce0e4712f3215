"""The registry: names, files, docstrings, signatures, and what is reported of any rule."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import damper.rules
from damper import DamperError
from damper.rules import (
    RULES,
    combine_reported,
    find,
    has_memory,
    initial_state,
    reads_loss,
    rebuild_state,
    settings_of,
    state_tensors,
)
from tests.rules.references import LOSS, combined, pairs

each_rule = pytest.mark.parametrize("name", RULES)


def test_every_rule_file_is_registered() -> None:
    files = Path(damper.rules.__file__).parent.glob("[!_]*.py")
    assert {file.stem.replace("_", "-") for file in files} == set(RULES)


@each_rule
def test_the_name_leads_to_file_docstring_and_keyword_settings(name: str) -> None:
    stem = name.replace("-", "_")
    rule = RULES[name]
    assert getattr(importlib.import_module(f"damper.rules.{stem}"), stem) is rule
    parameters = inspect.signature(rule).parameters
    assert list(parameters)[:2] == ["primary", "auxiliary"]
    for setting in settings_of(name):
        assert parameters[setting].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"{setting}:" in (rule.__doc__ or ""), f"{setting} is not described"
    assert "``" in (rule.__doc__ or "").splitlines()[0], "the docstring opens with the equation"


def test_memory_is_told_by_the_signature() -> None:
    assert {name for name in RULES if has_memory(name)} == {"bloop", "metabalance"}, (
        "name a new one here"
    )


def test_reading_the_loss_is_told_by_the_signature() -> None:
    assert {name for name in RULES if reads_loss(name)} == {"damper-fading"}, "name a new one here"
    assert reads_loss("plain,damper,damper-fading") and not reads_loss("plain,damper")


@each_rule
def test_a_state_is_taken_apart_and_put_together(name: str) -> None:
    state = initial_state(name, torch.ones(2, 3))
    again = rebuild_state(type(state), state_tensors(state))
    assert type(again) is type(state) and (again is None) == (not has_memory(name))
    for ours, theirs in zip(state_tensors(again), state_tensors(state), strict=True):
        assert ours is theirs and len(ours) == 2


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_state_of_ones_own_rule_keeps_its_form(kind: type) -> None:
    def averaging(primary: Tensor, auxiliary: Tensor, *, state: Any = None) -> Any:
        return primary, kind([auxiliary, auxiliary.sum(-1)])

    state = initial_state(averaging, torch.ones(2, 3))
    assert type(state) is kind and [one.shape for one in state] == [(2, 3), (2,)]
    with pytest.raises(DamperError, match="tensor or a tuple of tensors, but dict"):
        state_tensors({"average": torch.ones(3)})


def test_the_overview_has_a_row_for_every_rule_with_its_settings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rules" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) .*\|([^|]*)\|$", page, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", settings)) for name, settings in rows} == {
        name: set(settings_of(name)) for name in RULES
    }
    assert len(rows) == len(RULES)


def test_settings_come_with_their_defaults() -> None:
    assert settings_of("damper") == {"eta": 1.0}
    assert settings_of("metabalance") == {"r": 0.7, "beta": 0.9, "sizes": None}
    assert settings_of("pcgrad") == {}
    assert settings_of("damper-fading") == {"full_change": 0.3}


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    with pytest.raises(
        DamperError,
        match=r"^rule must name one of .*, but 'pcgard' was given: did you mean 'pcgrad'",
    ):
        find("pcgard")
    with pytest.raises(DamperError, match=r"but 'xyz' was given: choose one of bloop, cagrad, "):
        find("xyz")


def test_an_unknown_setting_is_met_with_the_known() -> None:
    with pytest.raises(DamperError, match=r"^lam is not a setting of damper: it has eta\."):
        combine_reported("damper", torch.ones(2), torch.ones(2), lam=1.0)
    with pytest.raises(DamperError, match=r"^lam is not a setting of pcgrad: it has none\."):
        combine_reported("pcgrad", torch.ones(2), torch.ones(2), lam=1.0)


@each_rule
def test_the_report_of_any_rule(name: str) -> None:
    g_R, g_T = pairs(9, 5)
    g, report = combine_reported(name, g_R, g_T, auxiliary_loss=LOSS)
    n_R, n_T, b = g_R.norm(dim=-1), g_T.norm(dim=-1), (g_R * g_T).sum(-1)
    torch.testing.assert_close(report.cosine, b / (n_R * n_T), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(report.norm_ratio, n_T / n_R, rtol=1e-12, atol=0)
    assert torch.equal(report.conflict, b < 0)
    assert not report.guard.any()
    assert (report.state is not None) == has_memory(name)
    assert torch.equal(g, combined(name, g_R, g_T))
    if has_memory(name):
        expected = (g - g_R).norm(dim=-1) / n_R
    else:
        # The part of g outside the primary's direction comes from the auxiliary alone.
        expected = across(g, g_R).norm(dim=-1) / across(g_T, g_R).norm(dim=-1) * n_T / n_R
    torch.testing.assert_close(report.weight, expected, rtol=1e-9, atol=1e-12)


def across(vector: Tensor, direction: Tensor) -> Tensor:
    along = (vector * direction).sum(-1, keepdim=True) / direction.square().sum(-1, keepdim=True)
    return vector - along * direction


def test_dampers_weight_is_w() -> None:
    g_R = torch.tensor([8.0, 0.0])
    _, report = combine_reported("damper", g_R, torch.tensor([-1.2, 1.6]), eta=0.5)
    assert report.weight.item() == pytest.approx(0.5)  # q = 2/8, w = √q


@pytest.mark.parametrize("bad", [0.0, 1e-40, torch.nan, torch.inf])
def test_the_guard_is_reported_and_nothing_else_is_nan(bad: float) -> None:
    fine, broken = torch.ones(3), torch.full((3,), bad)
    for g_R, g_T in [(fine, broken), (broken, fine)]:
        _, report = combine_reported("damper", torch.stack([g_R, fine]), torch.stack([g_T, fine]))
        assert report.guard.tolist() == [True, False]
        assert report.cosine.tolist() == pytest.approx([0.0, 1.0])
        assert report.norm_ratio.tolist() == pytest.approx([0.0, 1.0])
        assert report.weight.tolist() == pytest.approx([0.0, 1.0])
        assert report.conflict.tolist() == [False, False]


def test_half_precision_reports_in_float32() -> None:
    _, report = combine_reported("damper", torch.ones(3).half(), torch.ones(3).half() * 1e-4)
    assert report.norm_ratio.dtype == torch.float32


def swapped(primary: Tensor, auxiliary: Tensor, *, times: float = 1.0) -> Tensor:
    return times * auxiliary


def counting(primary: Tensor, auxiliary: Tensor, state: int | None = None) -> tuple[Tensor, int]:
    return primary, (state or 0) + 1


def anything(primary: Tensor, auxiliary: Tensor, **settings: Any) -> Tensor:
    return primary * settings["times"]


def test_any_callable_is_a_rule() -> None:
    g_R, g_T = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    g, report = combine_reported(swapped, g_R, g_T, times=3.0)
    assert g.tolist() == [0.0, 6.0]
    assert report.weight.item() == pytest.approx(37**0.5)
    rule: Callable[..., Any] = counting
    _, report = combine_reported(rule, g_R, g_T)
    _, report = combine_reported(rule, g_R, g_T, report.state)
    assert report.state == 2
    assert combine_reported(anything, g_R, g_T, times=2.0)[0].tolist() == [2.0, 0.0]


def forgetful(primary: Tensor, auxiliary: Tensor) -> tuple[Tensor, None]:
    return primary, None


@pytest.mark.parametrize(
    ("rule", "given"),
    [(forgetful, "a tuple"), (lambda primary, auxiliary: primary.sum(), r"shape \(\)")],
)
def test_a_rule_of_ones_own_that_returns_no_gradient(rule: Any, given: str) -> None:
    with pytest.raises(
        DamperError,
        match=rf"^rule must return a gradient of primary's shape \(2,\), but returned {given}",
    ):
        combine_reported(rule, torch.ones(2), torch.ones(2))


def one_in_place(primary: Tensor, auxiliary: Tensor) -> Tensor:
    return primary.add_(auxiliary)


def other_in_place(primary: Tensor, auxiliary: Tensor) -> Tensor:
    return primary + auxiliary.mul_(0.5)


@pytest.mark.parametrize("rule", [one_in_place, other_in_place])
def test_a_rule_of_ones_own_that_changes_what_the_report_compares_with(rule: Any) -> None:
    with pytest.raises(
        DamperError,
        match=r"^rule must leave both gradients as they are, but changed one in place: ",
    ):
        combine_reported(rule, torch.ones(2), torch.ones(2))


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        (lambda primary, auxiliary: primary > auxiliary, "torch.bool on cpu"),
        (lambda primary, auxiliary: primary + 1j * auxiliary, "torch.complex64 on cpu"),
        (lambda primary, auxiliary: primary.to("meta"), "torch.float32 on meta"),
    ],
)
def test_a_rule_of_ones_own_that_returns_another_kind_of_tensor(rule: Any, given: str) -> None:
    with pytest.raises(
        DamperError,
        match=rf"^rule must return a floating-point gradient .* cpu, but returned {given}: cast or "
        r"move it",
    ):
        combine_reported(rule, torch.ones(2), torch.ones(2))


def test_a_rule_of_ones_own_that_keeps_its_memory_to_itself() -> None:
    def rule(primary: Tensor, auxiliary: Tensor, state: Any = None) -> Tensor:
        return primary + auxiliary

    with pytest.raises(
        DamperError, match=r"^rule must return \(combined, state\), .* but returned a Tensor: "
    ):
        combine_reported(rule, torch.ones(3), torch.ones(3))


def test_a_built_in_function_is_a_rule_without_settings() -> None:
    g, _ = combine_reported(torch.add, torch.ones(3), torch.ones(3))
    assert g.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(DamperError, match=r"^alpha is not a setting of add: it has none"):
        combine_reported(torch.add, torch.ones(3), torch.ones(3), alpha=2.0)


def test_a_rule_that_forgets_a_swept_setting_s_axis_is_told():
    ones = torch.ones(6, 1)
    with pytest.raises(
        DamperError,
        match=r"shape \(6, 1\), but returned shape \(6, 6\): .* is \[P\]: unsqueeze\(-1\)",
    ):
        combine_reported(
            lambda primary, auxiliary, cap: primary + cap * auxiliary, ones, ones, cap=torch.ones(6)
        )
