"""PCGrad: conflict with neither loss."""

from __future__ import annotations

import pytest
import torch

from damper.rules.pcgrad import pcgrad
from tests.rules.references import pairs


@pytest.mark.parametrize(
    ("g_T", "golden"),
    [
        # b = -12: (3, 0) + 12/25 (-4, 3) = (1.08, 1.44), and (-4, 3) + 12/9 (3, 0) = (0, 3).
        ([-4, 3], [1.08, 4.44]),
        # b = 12: the sum.
        ([4, 3], [7, 3]),
    ],
)
def test_golden_rows(g_T: list[float], golden: list[float]) -> None:
    g = pcgrad(torch.tensor([3.0, 0.0]), torch.tensor(g_T, dtype=torch.float32))
    assert g.tolist() == pytest.approx(golden)


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_neither_loss_is_opposed(ratio: float) -> None:
    g_R, g_T = pairs(100, 8)
    g_T = ratio * g_T
    g = pcgrad(g_R, g_T)
    for gradient in (g_R, g_T):
        scale = g.norm(dim=-1) * gradient.norm(dim=-1)
        assert ((g * gradient).sum(-1) >= -1e-14 * scale).all()


def test_both_gradients_count_alike() -> None:
    g_R, g_T = pairs(20, 8)
    torch.testing.assert_close(pcgrad(g_R, g_T), pcgrad(g_T, g_R), rtol=1e-12, atol=1e-12)
