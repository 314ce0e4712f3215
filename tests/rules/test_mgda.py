"""MGDA: the shortest vector of the segment, and so a descent direction of both losses."""

from __future__ import annotations

import pytest
import torch

from damper.rules.mgda import mgda
from tests.rules.references import pairs


@pytest.mark.parametrize(
    ("g_T", "normalize", "golden"),
    [
        # ⟨g_T - g_R, g_T⟩ = 16, ‖g_R - g_T‖² = 25: 0.64 (3, 0) + 0.36 (0, 4)
        ([0, 4], False, [1.92, 1.44]),
        # (1, 0)/2 + (0, 1)/2
        ([0, 4], True, [0.5, 0.5]),
        # g_T is the nearest point itself.
        ([1, 0], False, [1, 0]),
        # The same gradient twice.
        ([3, 0], False, [3, 0]),
    ],
)
def test_golden_rows(g_T: list[float], normalize: bool, golden: list[float]) -> None:
    d = mgda(torch.tensor([3.0, 0.0]), torch.tensor(g_T, dtype=torch.float32), normalize=normalize)
    assert d.tolist() == pytest.approx(golden)


@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("normalize", [False, True])
def test_shortest_and_common_descent(ratio: float, normalize: bool) -> None:
    g_R, g_T = pairs(100, 8)
    d = mgda(g_R, ratio * g_T, normalize=normalize)
    ends = [x / x.norm(dim=-1, keepdim=True) if normalize else x for x in (g_R, ratio * g_T)]
    for x in torch.linspace(0, 1, 21, dtype=torch.float64):
        other = x * ends[0] + (1 - x) * ends[1]
        assert (d.norm(dim=-1) <= other.norm(dim=-1) * (1 + 1e-12)).all()
    for end in ends:
        assert ((d * end).sum(-1) >= d.square().sum(-1) * (1 - 1e-9)).all()


def test_a_zero_gradient_is_the_shortest_of_all() -> None:
    g_T = torch.tensor([3.0, 4.0])
    for normalize in (False, True):
        assert torch.equal(mgda(torch.zeros(2), g_T, normalize=normalize), torch.zeros(2))


def test_nearly_equal_gradients_keep_their_length() -> None:
    g = pairs(40, 8)[0]
    for difference in (1e-9, 1e-12, 1e-15, 1e-16):
        d = mgda(g, g * (1 + difference))
        torch.testing.assert_close(d, g, rtol=1e-8, atol=0)
