"""Unconditional projection: nothing along the primary is ever added."""

from __future__ import annotations

import pytest
import torch

from damper.rules.damper import damper
from damper.rules.unconditional_projection import unconditional_projection
from tests.rules.references import pairs


def test_golden_row() -> None:
    # ρ = 12/9, so (4, 3) - 12/9 (3, 0) = (0, 3); n_T = 5 before the projection: (3, 0) + 3/5 (0, 3)
    g = unconditional_projection(torch.tensor([3.0, 0.0]), torch.tensor([4.0, 3.0]))
    assert g.tolist() == pytest.approx([3.0, 1.8])


@pytest.mark.parametrize("eta", [0.0, 0.4, 1.0])
def test_progress_on_the_primary_is_exactly_its_own(eta: float) -> None:
    g_R, g_T = pairs(50, 8)
    g = unconditional_projection(g_R, g_T, eta=eta)
    torch.testing.assert_close((g * g_R).sum(-1), g_R.square().sum(-1), rtol=1e-13, atol=0)


def test_it_is_damper_under_conflict() -> None:
    g_R, g_T = pairs(50, 8)
    conflict = (g_R * g_T).sum(-1) < 0
    both = [rule(g_R, g_T, eta=0.5) for rule in (unconditional_projection, damper)]
    assert torch.equal(both[0][conflict], both[1][conflict])
    assert not torch.isclose(both[0][~conflict], both[1][~conflict]).all(-1).any()
