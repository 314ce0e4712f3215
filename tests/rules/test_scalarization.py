"""Scalarization: the weighted sum."""

from __future__ import annotations

import pytest
import torch

from damper.rules.scalarization import scalarization


def test_golden_row() -> None:
    # (3, 0) + 0.5 (-4, 3)
    g = scalarization(torch.tensor([3.0, 0.0]), torch.tensor([-4.0, 3.0]), weight=0.5)
    assert g.tolist() == pytest.approx([1.0, 1.5])


def test_weight_zero_keeps_the_primary() -> None:
    g_R = torch.tensor([3.0, 0.1])
    assert torch.equal(scalarization(g_R, torch.tensor([-4.0, 3.0]), weight=0.0), g_R)


def test_it_is_the_gradient_of_the_weighted_loss() -> None:
    x = torch.randn(
        6, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True
    )
    primary, auxiliary = x.sin().sum(), (x**3).sum()
    (whole,) = torch.autograd.grad(primary + 0.3 * auxiliary, x, retain_graph=True)
    g_R, g_T = (torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in (primary, auxiliary))
    torch.testing.assert_close(scalarization(g_R, g_T, weight=0.3), whole, rtol=1e-14, atol=1e-14)
