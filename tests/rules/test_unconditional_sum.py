"""Unconditional sum: always the same length along the auxiliary."""

from __future__ import annotations

import pytest
import torch

from damper.rules.damper import damper
from damper.rules.unconditional_sum import unconditional_sum
from tests.rules.references import pairs


def test_golden_row() -> None:
    # n_R = 3, n_T = 5, q = 1: (3, 0) + 3/5 (-4, 3)
    g = unconditional_sum(torch.tensor([3.0, 0.0]), torch.tensor([-4.0, 3.0]), eta=0.5)
    assert g.tolist() == pytest.approx([0.6, 1.8])


@pytest.mark.parametrize("eta", [0.0, 0.4, 1.0])
def test_the_added_length_depends_on_the_norms_alone(eta: float) -> None:
    g_R, g_T = pairs(50, 8)
    g_T = g_T * torch.logspace(-3, 3, 50, dtype=torch.float64).unsqueeze(1)
    n_R, n_T = g_R.norm(dim=-1), g_T.norm(dim=-1)
    added = (unconditional_sum(g_R, g_T, eta=eta) - g_R).norm(dim=-1)
    torch.testing.assert_close(
        added, n_R * (n_T / n_R).clamp(max=1) ** (1 - eta), rtol=1e-11, atol=0
    )


def test_it_is_damper_without_conflict() -> None:
    g_R, g_T = pairs(50, 8)
    agree = (g_R * g_T).sum(-1) >= 0
    assert agree.any()
    assert not agree.all()
    both = [rule(g_R, g_T, eta=0.5) for rule in (unconditional_sum, damper)]
    assert torch.equal(both[0][agree], both[1][agree])
    assert not torch.isclose(both[0][~agree], both[1][~agree]).all(-1).any()
