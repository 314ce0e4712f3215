"""CAGrad: on the ball around the average, the best for the worse-off loss."""

from __future__ import annotations

import math

import pytest
import torch

from damper.rules.cagrad import cagrad
from tests.rules.references import error, expected, pairs


@pytest.mark.parametrize(
    ("g_R", "g_T", "golden"),
    [
        # By symmetry x = 1/2, so g_w = g_0 = (4, 0): (4, 0) + 0.5 * 4 (1, 0)
        ([4, 3], [4, -3], [6, 0]),
        # The objective's slope (100 - 1)/2 + 0.5 * √25.25 * … stays positive: x = 0, g_w = (0, 1),
        # g_0 = (5, 0.5).
        ([10, 0], [0, 1], [5, 0.5 + 0.5 * math.sqrt(25.25)]),
    ],
)
def test_golden_rows(g_R: list[float], g_T: list[float], golden: list[float]) -> None:
    d = cagrad(torch.tensor(g_R, dtype=torch.float64), torch.tensor(g_T, dtype=torch.float64))
    assert d.tolist() == pytest.approx(golden, rel=1e-14)


@pytest.mark.parametrize("c", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_against_brute_force(c: float) -> None:
    g_R, g_T = pairs(7, 3)
    g_T = g_T * torch.logspace(-1, 1, 7, dtype=torch.float64).unsqueeze(1)
    for primary, auxiliary in zip(g_R, g_T, strict=True):
        assert (
            error(cagrad(primary, auxiliary, c=c), expected("cagrad", primary, auxiliary, c=c))
            < 1e-9
        )


@pytest.mark.parametrize("c", [0.1, 0.5, 0.9])
def test_it_lies_on_the_ball_and_no_point_of_the_ball_is_better(c: float) -> None:
    g_R, g_T = pairs(60, 3)
    d, g_0 = cagrad(g_R, g_T, c=c), (g_R + g_T) / 2
    radius = c * g_0.norm(dim=-1)
    torch.testing.assert_close((d - g_0).norm(dim=-1), radius, rtol=1e-10, atol=0)

    def worse_off(direction: torch.Tensor) -> torch.Tensor:
        return torch.minimum((direction * g_R).sum(-1), (direction * g_T).sum(-1))

    for around in torch.randn(
        500, 60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ):
        other = g_0 + radius.unsqueeze(1) * around / around.norm(dim=-1, keepdim=True)
        assert (worse_off(d) >= worse_off(other) - 1e-9 * g_0.norm(dim=-1)).all()


def test_c_zero_is_the_average() -> None:
    g_R, g_T = pairs(10, 4)
    torch.testing.assert_close(cagrad(g_R, g_T, c=0.0), (g_R + g_T) / 2, rtol=1e-12, atol=1e-13)


def test_equal_opposites_have_no_average_to_move_around() -> None:
    g_R = pairs(10, 4)[0]
    assert cagrad(g_R, -g_R).abs().max() < 1e-15
