"""Cosine gating: agreement weighs the auxiliary, or switches it."""

from __future__ import annotations

import pytest
import torch

from damper.rules.cosine_gating import cosine_gating
from tests.rules.references import error, expected, pairs


@pytest.mark.parametrize(
    ("g_T", "weighted", "golden"),
    [
        # c = 0.8: (3, 0) + 0.8 (4, 3)
        ([4, 3], True, [6.2, 2.4]),
        ([4, 3], False, [7, 3]),
        # c = -0.8: nothing is added.
        ([-4, 3], True, [3, 0]),
        ([-4, 3], False, [3, 0]),
        # c = 0 is agreement for the switch.
        ([0, 2], True, [3, 0]),
        ([0, 2], False, [3, 2]),
    ],
)
def test_golden_rows(g_T: list[float], weighted: bool, golden: list[float]) -> None:
    g = cosine_gating(
        torch.tensor([3.0, 0.0]), torch.tensor(g_T, dtype=torch.float32), weighted=weighted
    )
    assert g.tolist() == pytest.approx(golden)


def test_the_switch_against_the_equation() -> None:
    for g_R, g_T in zip(*pairs(20, 5, torch.float32), strict=True):
        g = cosine_gating(g_R, g_T, weighted=False)
        assert error(g, expected("cosine-gating", g_R, g_T, weighted=False)) < 1e-6
