"""PEGrad: the added part is orthogonal and no longer than the primary."""

from __future__ import annotations

import pytest
import torch

from damper import DamperError
from damper.rules.pegrad import pegrad
from tests.rules.references import error, expected, pairs


@pytest.mark.parametrize(
    ("g_T", "cap", "golden"),
    [
        # g_T⊥ = (0, 6), longer than n_R = 3, so halved.
        ([4, 6], "projected", [3, 3]),
        # g_T⊥ = (0, 2), shorter, so kept.
        ([-4, 2], "projected", [3, 2]),
        # g_T⊥ = (0, 3) times min(1, 3/5), the norm before the projection.
        ([-4, 3], "original", [3, 1.8]),
    ],
)
def test_golden_rows(g_T: list[float], cap: str, golden: list[float]) -> None:
    g = pegrad(torch.tensor([3.0, 0.0]), torch.tensor(g_T, dtype=torch.float32), cap=cap)
    assert g.tolist() == pytest.approx(golden)


@pytest.mark.parametrize("cap", ["projected", "original"])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_the_addition_is_orthogonal_and_capped(cap: str, ratio: float) -> None:
    g_R, g_T = pairs(50, 8)
    added = pegrad(g_R, ratio * g_T, cap=cap) - g_R
    n_R = g_R.norm(dim=-1)
    assert ((added * g_R).sum(-1).abs() < 1e-12 * n_R**2).all()
    assert (added.norm(dim=-1) <= n_R * (1 + 1e-12)).all()


def test_the_other_cap_against_the_equation() -> None:
    for g_R, g_T in zip(*pairs(10, 5, torch.float32), strict=True):
        assert (
            error(pegrad(g_R, g_T, cap="original"), expected("pegrad", g_R, g_T, cap="original"))
            < 1e-6
        )


def test_a_huge_parallel_auxiliary_adds_no_noise() -> None:
    g_R = pairs(1, 1000, torch.float32)[0][0]
    # Three times a float32 number is rounded, so the two are parallel to seven digits only.
    for factor in (2.0**60, 3e20, -3e20):
        assert torch.equal(pegrad(g_R, factor * g_R), g_R)


def test_an_unknown_cap_is_refused() -> None:
    with pytest.raises(
        DamperError, match=r"cap must be 'projected' or 'original', but 'none' was given"
    ):
        pegrad(torch.ones(2), torch.ones(2), cap="none")
