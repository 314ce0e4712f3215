"""Bloop: the projection follows a moving average, one step behind."""

from __future__ import annotations

import pytest
import torch

from damper import DamperError
from damper.rules.bloop import bloop
from tests.rules.references import pairs


def test_three_golden_steps() -> None:
    # 1. No average yet, so g_R: (1, 1) - 2/4 (2, 0) = (0, 1). The average becomes (2, 0).
    g, m = bloop(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 1.0]))
    assert g.tolist() == pytest.approx([2, 1])
    assert m.tolist() == pytest.approx([2, 0])
    # 2. The old average, not the new g_R: (0, 1) is added again. The average: 0.9 (2, 0) + 0.1 (0,
    # 4).
    g, m = bloop(torch.tensor([0.0, 4.0]), torch.tensor([1.0, 1.0]), m)
    assert g.tolist() == pytest.approx([0, 5])
    assert m.tolist() == pytest.approx([1.8, 0.4])
    # 3. ⟨g_T, m⟩ = 30.6, ‖m‖² = 3.4, so (17, 0) - 9 (1.8, 0.4) = (0.8, -3.6), half of it: (1, 1) +
    # (0.4, -1.8).
    g, m = bloop(torch.tensor([1.0, 1.0]), torch.tensor([17.0, 0.0]), m, weight=0.5)
    assert g.tolist() == pytest.approx([1.4, -0.8])


def test_the_addition_is_orthogonal_to_the_old_average() -> None:
    g_R, g_T = pairs(30, 8)
    m = pairs(30, 8, seed=1)[0]
    g, new = bloop(g_R, g_T, m, rate=0.25)
    assert (((g - g_R) * m).sum(-1).abs() < 1e-12 * m.norm(dim=-1) * g_T.norm(dim=-1)).all()
    torch.testing.assert_close(new, 0.75 * m + 0.25 * g_R, rtol=1e-15, atol=1e-15)


def test_zeros_and_none_start_alike() -> None:
    g_R, g_T = pairs(5, 4)
    for fresh, zeros in zip(bloop(g_R, g_T), bloop(g_R, g_T, torch.zeros_like(g_R)), strict=True):
        assert torch.equal(fresh, zeros)


def test_the_average_survives_what_is_not_finite() -> None:
    g_R, g_T = pairs(3, 4)
    m = pairs(3, 4, seed=1)[0]
    g_R[0, 1] = torch.nan
    g_T[1, 1] = torch.nan
    g, new = bloop(g_R, g_T, m)
    assert torch.equal(new[0], m[0])
    assert torch.equal(g[1], g_R[1])
    torch.testing.assert_close(new[1], 0.9 * m[1] + 0.1 * g_R[1], rtol=1e-15, atol=0)
    assert torch.equal(bloop(g_R, g_T)[1][0], torch.zeros(4, dtype=torch.float64))


def test_half_precision_averages_in_float32() -> None:
    g_R, g_T = pairs(2, 4, torch.bfloat16)
    g, m = bloop(g_R, g_T)
    assert (g.dtype, m.dtype) == (torch.bfloat16, torch.float32)


def test_a_state_of_another_shape_is_refused() -> None:
    with pytest.raises(
        DamperError, match=r"state must have primary's shape \(3,\), but has \(2,\): .*None"
    ):
        bloop(torch.ones(3), torch.ones(3), torch.ones(2))
    with pytest.raises(
        DamperError, match=r"state must have primary's shape \(3,\), but is of type int: .*None"
    ):
        bloop(torch.ones(3), torch.ones(3), 3)  # type: ignore[arg-type]


def test_a_memory_in_another_dtype_goes_on_in_the_gradients() -> None:
    g_R, g_T = torch.tensor([3e5, 4e5]), torch.tensor([1.0, 1.0])  # a norm beyond half precision
    state = torch.tensor([3e4, 4e4])
    g, new = bloop(g_R, g_T, state.half())
    torch.testing.assert_close(g, bloop(g_R, g_T, state)[0])
    assert bloop(g_R, g_T, state.double())[1].dtype == new.dtype == torch.float32
