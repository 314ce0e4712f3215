"""Four rules against an independent library, whose solvers set the last two's tolerances."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from damper.rules import RULES
from tests.rules.references import pairs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its solvers announce their own changes on import
    aggregation = pytest.importorskip("torchjd.aggregation")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("name", "theirs"), [("pcgrad", "PCGrad"), ("mgda", "MGDA")])
@pytest.mark.parametrize("ratio", [0.01, 1.0, 100.0])
def test_closed_forms_agree_to_rounding(name: str, theirs: str, ratio: float) -> None:
    aggregator = getattr(aggregation, theirs)()
    for g_R, g_T in zip(*pairs(30, 12), strict=True):
        expected = aggregator(torch.stack([g_R, ratio * g_T]))
        g = RULES[name](g_R, ratio * g_T)
        assert (g - expected).norm() <= 1e-13 * (g_R.norm() + ratio * g_T.norm())


@pytest.mark.parametrize("c", [0.2, 0.5, 0.8])
def test_cagrad_agrees_to_its_solvers_tolerance(c: float) -> None:
    aggregator = aggregation.CAGrad(c=c)
    for g_R, g_T in zip(*pairs(15, 12), strict=True):
        expected = aggregator(torch.stack([g_R, g_T]))
        assert (RULES["cagrad"](g_R, g_T, c=c) - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.parametrize(("scale_R", "scale_T"), [(1e-3, 1e-3), (1.0, 1e-5), (1e-5, 1.0)])
def test_cagrad_goes_on_where_theirs_returns_nothing(scale_R: float, scale_T: float) -> None:
    for g_R, g_T in zip(*pairs(5, 12), strict=True):
        g_R, g_T = scale_R * g_R / g_R.norm(), scale_T * g_T / g_T.norm()
        assert aggregation.CAGrad(c=0.5)(torch.stack([g_R, g_T])).norm() == 0
        g, g_0 = RULES["cagrad"](g_R, g_T, c=0.5), (g_R + g_T) / 2
        assert math.isclose(float((g - g_0).norm()), 0.5 * float(g_0.norm()), rel_tol=1e-9)


def test_nash_mtl_agrees_in_direction_for_comparable_norms() -> None:
    for g_R, g_T in zip(*pairs(15, 12), strict=True):
        g_T = g_T * (g_R.norm() / g_T.norm())
        expected = aggregation.NashMTL(n_tasks=2, max_norm=0.0)(torch.stack([g_R, g_T]))
        cosine = torch.nn.functional.cosine_similarity(RULES["nash-mtl"](g_R, g_T), expected, dim=0)
        assert cosine > 1 - 1e-6
