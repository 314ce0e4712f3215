"""One agent's gradients, parameter by parameter: the rules' results up to float32's rounding."""

from __future__ import annotations

import inspect
from collections import namedtuple

import pytest
import torch

from damper.errors import DamperError
from damper.rules import RULES, GradientReport, combine_reported, combine_single
from damper.rules._cpu_fast import CHUNK_SIZE, apply_rows, apply_single
from tests.rules.references import LOSS, loss_argument

SHAPES = [(CHUNK_SIZE // 40, 50), (50,), (3, 7), ()]  # the first takes several pieces
SPAN = [name for name, rule in RULES.items() if hasattr(rule, "coefficients")]


def gradients(seed: int, scale: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(shape, generator=generator) for shape in SHAPES]


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


@pytest.mark.parametrize("conflict", [False, True])
@pytest.mark.parametrize("name", SPAN)
def test_it_is_the_rule(name: str, conflict: bool) -> None:
    primary = gradients(0)
    sign = -0.1 if conflict else 0.1
    auxiliary = [0.01 * g + sign * p for g, p in zip(gradients(1), primary, strict=True)]
    kept = flat(primary), flat(auxiliary)
    quick = apply_single(RULES[name], primary, auxiliary, **loss_argument(name))
    assert quick is not None
    expected, report = combine_reported(name, *kept, auxiliary_loss=LOSS)
    assert [part.shape for part in quick[0]] == [part.shape for part in primary]
    assert (flat(quick[0]) - expected).norm() <= 1e-6 * expected.norm()
    assert bool(quick[1].conflict) is conflict
    for mine, other in zip(quick[1][:5], report[:5], strict=True):
        assert mine.dtype == other.dtype and float(mine) == pytest.approx(float(other), rel=1e-6)
    assert torch.equal(flat(primary), kept[0]) and torch.equal(flat(auxiliary), kept[1])


def test_a_report_s_values_go_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    g_R, g_T = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    g_T = g_T * torch.tensor(
        [[1.0], [1e-20], [1.0]]
    )  # the second is no ordinary one: the rule itself reports it
    expected = apply_rows(RULES["damper"], g_R, g_T)
    backwards = namedtuple("backwards", GradientReport._fields[::-1], defaults=[None] * 6)
    monkeypatch.setattr("damper.rules._report.GradientReport", backwards)
    monkeypatch.setattr("damper.rules._cpu_fast.GradientReport", backwards)
    found = apply_rows(RULES["damper"], g_R, g_T)
    assert expected is not None and found is not None and isinstance(found[1], backwards)
    for name in set(GradientReport._fields) - {"state"}:
        assert torch.equal(getattr(found[1], name), getattr(expected[1], name)), name


@pytest.mark.parametrize("size", [CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1])
def test_no_entry_is_lost_where_gradients_are_cut(size: int) -> None:
    g_R, g_T = torch.ones(size), torch.full((size,), -2.0)
    quick = apply_single(RULES["scalarization"], [g_R, torch.ones(3)], [g_T, torch.full((3,), 2.0)])
    assert quick is not None
    assert float(quick[1].cosine) == pytest.approx((3 - size) / (3 + size), rel=1e-6)


def test_damper_has_it_and_rules_with_a_memory_have_not() -> None:
    assert "damper" in SPAN and "bloop" not in SPAN
    assert apply_single(RULES["bloop"], gradients(0), gradients(1)) is None


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e20, float("nan")])
def test_what_is_not_ordinary_takes_the_rules_own_path(name: str, scale: float) -> None:
    primary, auxiliary = gradients(0), gradients(1, scale)
    assert apply_single(RULES[name], primary, auxiliary, **loss_argument(name)) is None
    combined, _ = combine_single(name, primary, auxiliary, auxiliary_loss=LOSS)
    expected, _ = combine_reported(name, flat(primary), flat(auxiliary), auxiliary_loss=LOSS)
    assert torch.equal(flat(combined), expected)


def test_float64_and_expanded_gradients() -> None:
    primary, auxiliary = gradients(0), gradients(1)
    wide = [g.double() for g in primary], [g.double() for g in auxiliary]
    assert apply_single(RULES["damper"], *wide) is None
    assert combine_single("damper", *wide)[0][0].dtype == torch.float64
    ones = [torch.ones(()).expand(4, 5)]  # as autograd returns it for a plain sum
    combined, _ = combine_single("damper", ones, ones)
    assert torch.allclose(combined[0], torch.full((4, 5), 2.0)) and combined[0].is_contiguous()


@pytest.mark.parametrize("name", SPAN)
def test_rows_are_the_rule_each_for_itself(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    g_R, g_T = torch.randn(2, 5, CHUNK_SIZE + 7, generator=generator)
    g_T[3] = 0.0  # takes the rule's own path
    per_agent = {"eta": torch.linspace(0.0, 1.0, 5), "auxiliary_loss": torch.linspace(0.0, 0.1, 5)}
    accepted = inspect.signature(RULES[name]).parameters
    own = {key: value for key, value in per_agent.items() if key in accepted}
    rows = apply_rows(RULES[name], g_R, g_T, **own)
    assert rows is not None
    expected, report = combine_reported(name, g_R, g_T, **own)
    assert ((rows[0] - expected).norm(dim=1) <= 1e-6 * expected.norm(dim=1)).all()
    assert torch.equal(rows[0][3], g_R[3])
    for mine, other in zip(rows[1][:5], report[:5], strict=True):
        assert mine.dtype == other.dtype
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    g_R[1, 4] = torch.nan
    spoiled = apply_rows(RULES[name], g_R, g_T, **own)
    assert spoiled is not None and torch.equal(spoiled[0][[0, 2, 3, 4]], rows[0][[0, 2, 3, 4]])


def test_rows_of_rules_outside_the_span_and_of_wide_numbers_are_left_alone() -> None:
    g_R, g_T = torch.ones(2, 3), torch.ones(2, 3)
    assert apply_rows(RULES["bloop"], g_R, g_T) is None
    assert apply_rows(RULES["damper"], g_R.double(), g_T.double()) is None


def test_torch_compile_leaves_it_as_it_is() -> None:
    compiled = torch.compile(combine_single, backend="eager")
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True, recompile_limit=2):
        for seed in range(4):  # other norms each time, which are Python's numbers here
            pair = gradients(seed), gradients(seed + 10)
            assert all(
                map(torch.equal, compiled("damper", *pair)[0], combine_single("damper", *pair)[0])
            )


def test_a_setting_with_an_axis_too_many_is_refused_as_in_the_rule() -> None:
    for gradient in (torch.ones(3), torch.ones(3).double()):
        with pytest.raises(
            DamperError,
            match=r"^eta must broadcast over the leading axes \(\), but has shape \(1,\)",
        ):
            combine_single("damper", [gradient], [gradient], eta=torch.tensor([0.5]))
