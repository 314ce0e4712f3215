"""Every rule at every scale, dtype and length, against the equations in 400 digits."""

from __future__ import annotations

from itertools import product

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch

from damper.rules import RULES
from tests.rules.references import REFERENCES, combined, digits, error, expected, norm, pairs

SCALES = [1e-30, 1e-15, 1.0, 1e15, 1e30]
each_rule = pytest.mark.parametrize("name", RULES)


@each_rule
def test_float32_at_every_scale_also_mixed(name: str) -> None:
    primary, auxiliary = pairs(4, 6)
    for scale_R, scale_T in product(SCALES, SCALES):
        for g_R, g_T in zip(
            (primary * scale_R).float(), (auxiliary * scale_T).float(), strict=True
        ):
            assert error(combined(name, g_R, g_T), expected(name, g_R, g_T)) < 1e-6, (
                scale_R,
                scale_T,
            )


@each_rule
def test_float64(name: str) -> None:
    primary, auxiliary = pairs(4, 6)
    for scale_R, scale_T in ((1e300, 1e300), (1e270, 1e-30), (1e-30, 1e270), (1.0, 1.0)):
        for g_R, g_T in zip(primary * scale_R, auxiliary * scale_T, strict=True):
            assert error(combined(name, g_R, g_T), expected(name, g_R, g_T)) < 1e-13, (
                scale_R,
                scale_T,
            )


@each_rule
def test_float64_below_float32s_range_is_no_direction(name: str) -> None:
    g_R = torch.tensor([1.0, -2.0], dtype=torch.float64)
    assert torch.equal(combined(name, g_R, 1e-300 * g_R.flip(0)), g_R)


@each_rule
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_only_at_the_end(name: str, dtype: torch.dtype) -> None:
    primary, auxiliary = pairs(3, 50, dtype)
    for g_R, g_T in zip(primary, auxiliary, strict=True):
        g = combined(name, g_R, g_T)
        assert g.dtype == dtype
        # Rounding the exact answer to the dtype errs by half an ulp per entry at most.
        assert error(g, expected(name, g_R, g_T)) < torch.finfo(dtype).eps / 2 + 1e-6


@each_rule
def test_every_length(name: str) -> None:
    for n in (2, 3, 17, 1000, 100_003):
        for g_R, g_T in zip(*pairs(2, n, torch.float32), strict=True):
            reference = REFERENCES[name](g_R.double().numpy(), g_T.double().numpy())
            wrong = combined(name, g_R, g_T).double().numpy() - reference
            assert np.linalg.norm(wrong) < 1e-6 * np.linalg.norm(reference), n


# By hand, for g_R = 3 and g_T = -1.5: a single parameter is always parallel or opposite. CAGrad:
# g_0 = 0.75, and the weaker gradient pulls it back by half of that. MetaBalance: 3 - (0.7 * 3/1.5 +
# 0.3) * 1.5.
ONE_PARAMETER = dict.fromkeys(RULES, 3.0) | {
    "scalarization": 1.5,
    "unconditional-sum": 0.0,
    "pcgrad": 0.0,
    "cagrad": 0.375,
    "mgda": 0.0,
    "gradnorm": 0.0,
    "metabalance": 0.45,
    "nash-mtl": 0.0,
}


@each_rule
def test_one_parameter(name: str) -> None:
    g = combined(name, torch.tensor([3.0]), torch.tensor([-1.5]))
    by_hand = ONE_PARAMETER[name]
    assert g.item() == pytest.approx(by_hand, abs=1e-6), (
        "3 unless ONE_PARAMETER says what it is, worked out by hand"
    )


@each_rule
def test_exact_multiples_and_opposites(name: str) -> None:
    g_R = pairs(1, 9, torch.float32)[0][0]
    for factor in (-4.0, -1.0, -0.25, 0.25, 1.0, 4.0):
        g = combined(name, g_R, factor * g_R)
        if name == "pegrad":
            exact = digits(g_R)
        elif name == "nash-mtl" and factor < 0:
            exact = 0 * digits(g_R)
        else:
            exact = expected(name, g_R, factor * g_R)
        # Opposites may cancel to nothing, so the error is measured against what went in.
        assert norm(digits(g) - exact) < 1e-6 * max(1.0, abs(factor)) * norm(digits(g_R)), factor


@each_rule
def test_a_zero_auxiliary_leaves_every_bit_of_the_primary(name: str) -> None:
    g_R = torch.tensor([[0.0, -0.0, 1e-45, -3.0], [1e-30, 1e30, 0.1, -0.0]])
    bits = combined(name, g_R, torch.zeros_like(g_R)).view(torch.int32)
    assert torch.equal(bits, g_R.view(torch.int32))


@each_rule
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_auxiliary_falls_back_to_the_primary_of_that_agent_alone(
    name: str, bad: float
) -> None:
    primary, auxiliary = pairs(5, 7, torch.float32)
    whole = combined(name, primary, auxiliary)
    auxiliary[2, 3] = bad
    g = combined(name, primary, auxiliary)
    others = [0, 1, 3, 4]
    assert torch.equal(g[2], primary[2])
    assert torch.equal(g[others], whole[others])


@each_rule
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_broken_primary_stays_with_its_agent(name: str, bad: float) -> None:
    primary, auxiliary = pairs(5, 7, torch.float32)
    whole = combined(name, primary, auxiliary)
    primary[2, 3] = bad
    g = combined(name, primary, auxiliary)
    others = [0, 1, 3, 4]
    torch.testing.assert_close(g[2], primary[2], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(g[others], whole[others])


def finite_float32() -> st.SearchStrategy[float]:
    return st.floats(width=32, allow_nan=False, allow_infinity=False)


@each_rule
@hypothesis.given(
    data=st.lists(st.tuples(finite_float32(), finite_float32()), min_size=1, max_size=4)
)
def test_finite_inputs_never_give_nan(name: str, data: list[tuple[float, float]]) -> None:
    g_R, g_T = torch.tensor(data, dtype=torch.float32).unbind(1)
    assert not combined(name, g_R.contiguous(), g_T.contiguous()).isnan().any()


# The share of the auxiliary that a rule adds to a primary of zero. Rules that measure the auxiliary
# by the primary have nothing to add; the others add what they add to any primary.
_WHOLE = dict.fromkeys(("scalarization", "pcgrad", "dynamic-barrier", "gcr-ppo", "bloop"), 1.0)
ZERO_PRIMARY = dict.fromkeys(RULES, 0.0) | _WHOLE | {"metabalance": 0.3, "cagrad": 0.5}


@each_rule
def test_a_zero_primary_is_no_accident(name: str) -> None:
    g_T = torch.tensor([3.0, -4.0])
    g, by_hand = combined(name, torch.zeros(2), g_T), ZERO_PRIMARY[name]
    assert torch.allclose(g, by_hand * g_T), (
        "0 unless ZERO_PRIMARY says what it is, worked out by hand"
    )


def test_what_leaves_the_dtypes_range_is_infinite_or_largest_but_no_nan() -> None:
    g_R, g_T = torch.tensor([1.0, 0.0, 3e38]), torch.tensor([2e38, 0.0, -2e38])
    g = combined("scalarization", g_R, g_T, weight=1e30)
    assert g[0] >= torch.finfo(torch.float32).max
    assert g[1] == 0
    assert g[2] <= -3e38 / 1e6
