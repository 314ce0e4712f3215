"""Dynamic Barrier: the smallest help to the auxiliary that keeps the primary's descent."""

from __future__ import annotations

import pytest
import torch

from damper.rules.dynamic_barrier import dynamic_barrier
from tests.rules.references import pairs


@pytest.mark.parametrize(
    ("g_T", "weight", "golden"),
    [
        # wρ = 0.5 * (-12/9) = -2/3, so 5/3 of g_R: (-2, 1.5) + (5, 0)
        ([-4, 3], 0.5, [3, 1.5]),
        # wρ = 12/9 > 1: the auxiliary descends the primary enough, and g_R is left out.
        ([4, 3], 1.0, [4, 3]),
        # wρ = 0.5 * 12/9 = 2/3, so 1/3 of g_R: (2, 1.5) + (1, 0)
        ([4, 3], 0.5, [3, 1.5]),
    ],
)
def test_golden_rows(g_T: list[float], weight: float, golden: list[float]) -> None:
    d = dynamic_barrier(
        torch.tensor([3.0, 0.0]), torch.tensor(g_T, dtype=torch.float32), weight=weight
    )
    assert d.tolist() == pytest.approx(golden)


@pytest.mark.parametrize("weight", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_the_barrier_holds_and_is_touched_unless_idle(weight: float, beta: float) -> None:
    g_R, g_T = pairs(100, 8)
    d = dynamic_barrier(g_R, g_T, weight=weight, beta=beta)
    progress, barrier = (d * g_R).sum(-1), beta * g_R.square().sum(-1)
    assert (progress >= barrier * (1 - 1e-12)).all()
    idle = torch.isclose(d, weight * g_T, rtol=1e-10, atol=1e-12).all(-1)
    torch.testing.assert_close(progress[~idle], barrier[~idle], rtol=1e-11, atol=0)
