"""GradNorm's fixed point: equal norms, weights that sum to the number of losses."""

from __future__ import annotations

import pytest
import torch

from damper.rules.gradnorm import gradnorm
from tests.rules.references import pairs


def test_golden_row() -> None:
    # w_R = 2 * 6/9 = 4/3 and w_T = 2 * 3/9 = 2/3, so both have length 4.
    d = gradnorm(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 6.0]))
    assert d.tolist() == pytest.approx([4.0, 4.0])


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_norms_are_equal_and_weights_sum_to_two(ratio: float) -> None:
    g_R, g_T = pairs(30, 6)
    g_T = ratio * g_T
    for primary, auxiliary, d in zip(g_R, g_T, gradnorm(g_R, g_T), strict=True):
        basis = torch.stack([primary, auxiliary], 1)
        w_R, w_T = (
            torch.linalg.lstsq(basis, d.unsqueeze(1), driver="gelsd").solution.flatten().tolist()
        )
        assert w_R * primary.norm().item() == pytest.approx(w_T * auxiliary.norm().item(), rel=1e-9)
        assert w_R + w_T == pytest.approx(2.0, rel=1e-9)
