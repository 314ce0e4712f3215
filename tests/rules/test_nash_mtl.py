"""Nash-MTL: the closed form solves the bargaining equation."""

from __future__ import annotations

import math

import pytest
import torch

from damper.rules.nash_mtl import nash_mtl
from tests.rules.references import pairs


def test_golden_rows() -> None:
    # c = 0: (1, 0) + (0, 1). And c = 7/25, 1 + c = 32/25: ((1, 0) + (7, 24)/25) / √(32/25)
    g_R = torch.tensor([[3.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    g_T = torch.tensor([[0.0, 5.0], [7.0, 24.0]], dtype=torch.float64)
    d = nash_mtl(g_R, g_T).flatten().tolist()
    assert d == pytest.approx([1.0, 1.0, 1.28 / math.sqrt(1.28), 0.96 / math.sqrt(1.28)], rel=1e-14)


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_it_solves_the_bargaining_equation(ratio: float) -> None:
    g_R, g_T = pairs(60, 8)
    g_T = ratio * g_T
    d = nash_mtl(g_R, g_T)
    # GᵀG α = 1/α with d = G α says α_i = 1/⟨g_i, d⟩, so d must come back from its own dot products.
    again = sum(g / (g * d).sum(-1, keepdim=True) for g in (g_R, g_T))
    torch.testing.assert_close(again, d, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(d.norm(dim=-1), torch.full((60,), math.sqrt(2), dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opposites_do_not_bargain(dtype: torch.dtype) -> None:
    g_R = pairs(20, 50, dtype)[0]
    assert torch.equal(nash_mtl(g_R, -3 * g_R), torch.zeros_like(g_R))
