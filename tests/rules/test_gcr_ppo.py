"""GCR-PPO: DAMPER's projection without its magnitude control."""

from __future__ import annotations

import pytest
import torch

from damper.rules.gcr_ppo import gcr_ppo
from tests.rules.references import pairs


@pytest.mark.parametrize(
    ("g_T", "weight", "golden"),
    [
        # ρ = -12/9: (3, 0) + (-4, 3) + 12/9 (3, 0)
        ([-4, 3], 1.0, [3, 3]),
        ([-4, 3], 2.0, [3, 6]),
        ([4, 3], 1.0, [7, 3]),
    ],
)
def test_golden_rows(g_T: list[float], weight: float, golden: list[float]) -> None:
    g = gcr_ppo(torch.tensor([3.0, 0.0]), torch.tensor(g_T, dtype=torch.float32), weight=weight)
    assert g.tolist() == pytest.approx(golden)


def test_under_conflict_the_addition_is_orthogonal() -> None:
    g_R, g_T = pairs(100, 8)
    conflict = (g_R * g_T).sum(-1) < 0
    added = (gcr_ppo(g_R, g_T) - g_R)[conflict]
    assert ((added * g_R[conflict]).sum(-1).abs() < 1e-12 * g_R[conflict].square().sum(-1)).all()
    torch.testing.assert_close(
        gcr_ppo(g_R, g_T)[~conflict], (g_R + g_T)[~conflict], rtol=1e-12, atol=1e-13
    )
