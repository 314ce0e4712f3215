"""What rules promise, held for every rule that promises it."""

from __future__ import annotations

import re
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

from damper.rules import RULES
from tests.rules.references import combined, pairs

# ⟨g, g_R⟩ ≥ n_R²: to first order the primary loss falls at least as fast as by its own gradient.
KEEPS_PRIMARY_PROGRESS = [
    "damper",
    "damper-fading",
    "unconditional-projection",
    "pegrad",
    "cosine-gating",
    "dynamic-barrier",
    "gcr-ppo",
    "bloop",
]
# ⟨g, g_R⟩ ≥ 0 and ⟨g, g_T⟩ ≥ 0: neither loss rises, to first order.
SERVES_BOTH = ["pcgrad", "mgda", "nash-mtl", "gradnorm"]
# ‖g − g_R‖ ≤ n_R: the auxiliary never outweighs the primary.
BOUNDED = ["damper", "damper-fading", "unconditional-sum", "unconditional-projection", "pegrad"]
# Rules whose answer has a length of its own: scaling both gradients leaves it.
UNIT_FREE = ["nash-mtl"]
PROMISES_NOTHING = ["scalarization", "cagrad", "metabalance"]
PAGE = (Path(__file__).parents[2] / "docs" / "rules" / "index.md").read_text(encoding="utf-8")


def test_every_rule_has_its_promises() -> None:
    promises = {*KEEPS_PRIMARY_PROGRESS, *SERVES_BOTH, *BOUNDED, *UNIT_FREE}
    assert promises.isdisjoint(PROMISES_NOTHING)
    assert promises | {*PROMISES_NOTHING} == set(RULES), (
        "put the rule into the lists above of what it promises"
    )


@pytest.mark.parametrize(
    ("promise", "rules"),
    [
        (r"g_R\rangle \ge n_R^2", KEEPS_PRIMARY_PROGRESS),
        (r"g_T\rangle \ge 0", SERVES_BOTH),
        (r"\le n_R", BOUNDED),
    ],
)
def test_the_page_gives_the_same_promises(promise: str, rules: list[str]) -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith("|") and promise in line)
    assert set(re.findall(r"[a-z-]+", row.split("|")[2])) & set(RULES) == set(rules)


def progress(g: Tensor, gradient: Tensor) -> Tensor:
    return (g * gradient).sum(-1)


each_ratio = pytest.mark.parametrize("ratio", [1e-6, 1e-2, 1.0, 1e2, 1e6])


@pytest.mark.parametrize("name", KEEPS_PRIMARY_PROGRESS)
@each_ratio
def test_primary_progress_is_kept(name: str, ratio: float) -> None:
    g_R, g_T = pairs(300, 7)
    g = combined(name, g_R, ratio * g_T)
    # Parts that cancel may be `ratio` times longer than what is left of them.
    slack = 1e-14 * max(1.0, ratio)
    assert (progress(g, g_R) >= g_R.square().sum(-1) * (1 - 20 * slack)).all()


@pytest.mark.parametrize("name", sorted(set(RULES) - set(KEEPS_PRIMARY_PROGRESS)))
def test_the_other_rules_do_give_primary_progress_up(name: str) -> None:
    g_R, g_T = pairs(300, 7)
    assert (progress(combined(name, g_R, g_T), g_R) < 0.99 * g_R.square().sum(-1)).any()


@pytest.mark.parametrize("name", SERVES_BOTH)
@each_ratio
def test_neither_loss_rises(name: str, ratio: float) -> None:
    g_R, g_T = pairs(300, 7)
    g_T = ratio * g_T
    g = combined(name, g_R, g_T)
    for gradient in (g_R, g_T):
        floor = -1e-13 * gradient.norm(dim=-1) * g.norm(dim=-1)
        assert (progress(g, gradient) >= floor).all()


@pytest.mark.parametrize("name", BOUNDED)
@each_ratio
def test_the_auxiliary_never_outweighs_the_primary(name: str, ratio: float) -> None:
    g_R, g_T = pairs(300, 7)
    added = combined(name, g_R, ratio * g_T) - g_R
    assert (added.norm(dim=-1) <= g_R.norm(dim=-1) * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", RULES)
def test_units_do_not_matter(name: str) -> None:
    # A power of two changes exponents only, so not even rounding may differ.
    g_R, g_T = pairs(50, 7)
    scaled = combined(name, 2.0**20 * g_R, 2.0**20 * g_T)
    factor = 1.0 if name in UNIT_FREE else 2.0**20
    assert torch.equal(scaled, factor * combined(name, g_R, g_T))


@pytest.mark.parametrize("name", RULES)
def test_coordinates_do_not_matter(name: str) -> None:
    g_R, g_T = pairs(50, 7)
    random = torch.randn(7, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rotation, _ = torch.linalg.qr(random)
    turned = combined(name, g_R @ rotation, g_T @ rotation)
    torch.testing.assert_close(turned, combined(name, g_R, g_T) @ rotation, rtol=1e-9, atol=1e-10)


vectors = st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3)


@pytest.mark.parametrize("name", KEEPS_PRIMARY_PROGRESS)
@hypothesis.given(primary=vectors, auxiliary=vectors)
def test_primary_progress_is_kept_on_awkward_vectors(
    name: str, primary: list[float], auxiliary: list[float]
) -> None:
    g_R, g_T = (
        torch.tensor(primary, dtype=torch.float64),
        torch.tensor(auxiliary, dtype=torch.float64),
    )
    g = combined(name, g_R, g_T)
    rounding = 1e-13 * g_R.norm() * (g_R.norm() + g_T.norm())
    assert progress(g, g_R) >= g_R.square().sum() - rounding


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_shape_and_dtype_come_back(name: str, dtype: torch.dtype) -> None:
    g_R, g_T = pairs(4, 3, dtype)
    g = combined(name, g_R.view(2, 2, 3), g_T.view(2, 2, 3))
    assert (g.shape, g.dtype) == ((2, 2, 3), dtype)
