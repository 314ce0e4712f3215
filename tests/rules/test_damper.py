"""DAMPER: golden rows, the paper's bounds, and ten million parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from damper import combine
from damper.rules.damper import damper
from tests.rules.references import REFERENCES, pairs


@pytest.mark.parametrize(
    ("g_R", "g_T", "eta", "expected"),
    [
        # b = -12 < 0, so g̃_T = (-4, 3) + 12/9 (3, 0) = (0, 3); n_T = 5 > n_R = 3, q = 1: g_R + 3/5
        # g̃_T.
        ([3, 0], [-4, 3], 0.3, [3, 1.8]),
        # b = 12 > 0, so g̃_T = g_T: (3, 0) + 3/5 (4, 3).
        ([3, 0], [4, 3], 1.0, [5.4, 1.8]),
        # n_T = 2, n_R = 8, q = 1/4, w = 1/2: g̃_T = (0, 1.6), (8/2) (1/2) = 2: (8, 0) + 2 (0, 1.6).
        ([8, 0], [-1.2, 1.6], 0.5, [8, 3.2]),
        # The same with η = 0 (w = 1/4, capping only: 1 times g̃_T) and η = 1 (w = 1, matching: 4
        # times).
        ([8, 0], [-1.2, 1.6], 0.0, [8, 1.6]),
        ([8, 0], [-1.2, 1.6], 1.0, [8, 6.4]),
    ],
)
def test_golden_rows(g_R: list[float], g_T: list[float], eta: float, expected: list[float]) -> None:
    g = combine(torch.tensor(g_R, dtype=torch.float64), torch.tensor(g_T, dtype=torch.float64), eta)
    assert g.tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
def test_primary_is_preserved_and_the_addition_bounded(eta: float, ratio: float) -> None:
    g_R, g_T = pairs(200, 10)
    g_T = ratio * g_T
    g = combine(g_R, g_T, eta)
    n_R, n_T = g_R.norm(dim=-1), g_T.norm(dim=-1)
    s = n_R * (n_T / n_R).clamp(max=1) ** (1 - eta)
    assert ((g * g_R).sum(-1) >= n_R**2 * (1 - 1e-14)).all()
    added = (g - g_R).norm(dim=-1)
    assert (added <= s * (1 + 1e-12)).all()
    # Without conflict the bound is met; with it the addition is shorter by the sine, as the
    # projection leaves it.
    cosine = (g_R * g_T).sum(-1) / (n_R * n_T)
    torch.testing.assert_close(added, s * (1 - cosine.clamp(max=0) ** 2).sqrt(), rtol=1e-10, atol=0)


def test_every_eta_against_algorithm_1() -> None:
    g_R, g_T = pairs(60, 12)
    g_T = g_T * torch.logspace(-3, 3, 60, dtype=torch.float64).unsqueeze(1)
    eta = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = combine(g_R, g_T, eta)
    for g, *arguments in zip(batch, g_R, g_T, eta, strict=True):
        expected = REFERENCES["damper"](*(x.numpy() for x in arguments))
        np.testing.assert_allclose(
            g.numpy(), expected, rtol=0, atol=1e-13 * np.linalg.norm(expected)
        )


def test_eta_one_ignores_the_auxiliarys_length() -> None:
    g_R, g_T = pairs(20, 10)
    torch.testing.assert_close(
        combine(g_R, 1e-9 * g_T, 1.0), combine(g_R, g_T, 1.0), rtol=1e-12, atol=1e-12
    )


def test_ten_million_parameters() -> None:
    generator = torch.Generator().manual_seed(0)
    g_R, g_T = (torch.randn(10_000_000, generator=generator) for _ in range(2))
    g_T -= 0.5 * g_R
    raw_R, raw_T = g_R.double().numpy(), g_T.double().numpy()
    expected = REFERENCES["damper"](raw_R, raw_T, eta=0.7)
    wrong = combine(g_R, g_T, 0.7).double().numpy() - expected
    assert np.linalg.norm(wrong) < 1e-6 * np.linalg.norm(expected)


def test_combine_is_the_rule() -> None:
    g_R, g_T = pairs(5, 4)
    assert torch.equal(combine(g_R, g_T, 0.4), damper(g_R, g_T, eta=0.4))
    assert torch.equal(combine(g_R, g_T), damper(g_R, g_T, eta=1.0))


@pytest.mark.parametrize("tiny", [0.0, 1e-45, 1e-39])
def test_a_primary_without_direction_is_returned(tiny: float) -> None:
    g_R = torch.tensor([tiny, -tiny])
    assert torch.equal(combine(g_R, torch.tensor([1.0, 2.0])), g_R)
