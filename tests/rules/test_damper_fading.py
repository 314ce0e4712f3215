"""Fading DAMPER: golden rows, what its weight reads, and its guarantees at every scale."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

import damper
from damper import DamperError
from damper.rules import (
    GradientReport,
    combine_reported,
    combine_single,
    initial_state,
    reads_loss,
    settings_of,
    state_tensors,
)
from damper.rules.damper_fading import damper_fading
from tests.rules.references import digits, error, expected, norm, pairs

SCALES = [1e-30, 1e-15, 1.0, 1e15, 1e30]
LOSSES = [1e-30, 1e-9, 0.01, 0.09, 1e30]
NOTHING = [0.0, -0.0, -0.01, -1e30, torch.nan, torch.inf, -torch.inf]


@pytest.mark.parametrize(
    ("g_T", "loss", "full_change", "golden"),
    [
        # b = -9.6 < 0, so g̃_T = (-1.2, 1.6) + 9.6/64 (8, 0) = (0, 1.6); n_R/n_T = 4.
        ([-1.2, 1.6], 0.0225, 0.3, [8, 3.2]),  # w = 0.15/0.3
        ([-1.2, 1.6], 0.04, 0.8, [8, 1.6]),  # w = 0.2/0.8
        ([-1.2, 1.6], 0.09, 0.3, [8, 6.4]),  # w = 1, the full change
        ([-1.2, 1.6], 100.0, 0.3, [8, 6.4]),
        ([1.2, 1.6], 0.0225, 0.3, [10.4, 3.2]),  # no conflict: g̃_T = g_T
    ],
)
def test_golden_rows(g_T: list[float], loss: float, full_change: float, golden: list[int]) -> None:
    for value in (loss, torch.tensor(loss, dtype=torch.float64)):
        g = damper_fading(
            torch.tensor([8.0, 0.0], dtype=torch.float64),
            torch.tensor(g_T, dtype=torch.float64),
            auxiliary_loss=value,
            full_change=full_change,
        )
        assert g.tolist() == pytest.approx(golden, rel=1e-14)


def test_at_the_full_change_it_is_damper_with_eta_one() -> None:
    g_R, g_T = pairs(50, 7)
    g = damper_fading(g_R, g_T, auxiliary_loss=0.0901)
    torch.testing.assert_close(g, damper.combine(g_R, g_T, 1.0), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("loss", NOTHING)
def test_a_loss_of_nothing_or_not_finite_leaves_the_primary(loss: float) -> None:
    for dtype in (torch.float32, torch.float64):
        g_R, g_T = pairs(3, 5, dtype)
        losses = torch.tensor([0.01, loss, 0.02], dtype=dtype)
        g, report = combine_reported(damper_fading, g_R, g_T, auxiliary_loss=losses)
        assert torch.equal(g[1], g_R[1]) and report.weight[1] == 0
        for agent in (0, 2):
            alone = damper_fading(g_R[agent], g_T[agent], auxiliary_loss=losses[agent])
            assert torch.equal(g[agent], alone) and not torch.equal(alone, g_R[agent])
        (single,), _ = combine_single("damper-fading", [g_R[1]], [g_T[1]], auxiliary_loss=losses[1])
        assert torch.equal(single, g_R[1])


def hostile_problems() -> list[tuple[Tensor, Tensor, float]]:
    """Float32 pairs in conflict and agreement, of every two scales, with every loss."""
    primary, auxiliary = pairs(4, 5)
    return [
        (g_R, g_T, loss)
        for scale_R, scale_T, loss in product(SCALES, SCALES, LOSSES)
        for g_R, g_T in zip((primary * scale_R).float(), (auxiliary * scale_T).float(), strict=True)
    ]


def test_every_loss_at_every_scale_against_400_digits() -> None:
    for g_R, g_T, loss in hostile_problems():
        g = damper_fading(g_R, g_T, auxiliary_loss=loss)
        exact = expected("damper-fading", g_R, g_T, auxiliary_loss=mpmath.mpf(loss))
        assert error(g, exact) < 1e-6
        if 0.01 <= loss < 1e30:  # where the added part is not lost in the primary's rounding
            wrong = norm((digits(g) - digits(g_R)) - (exact - digits(g_R)))
            assert wrong < 1e-5 * norm(exact - digits(g_R))


def test_both_guarantees_at_every_scale() -> None:
    for g_R, g_T, loss in hostile_problems():
        g, exact_R = digits(damper_fading(g_R, g_T, auxiliary_loss=loss)), digits(g_R)
        n_R, w = norm(exact_R), min(loss**0.5 / 0.3, 1.0)
        assert g @ exact_R >= n_R**2 * (1 - 1e-6)
        assert norm(g - exact_R) <= n_R * (w + 1e-6)


@pytest.mark.parametrize("factor", [2.0**-60, 2.0**-1, 2.0**40])
def test_a_multiple_of_the_reward_multiplies_what_is_added(factor: float) -> None:
    g_R, g_T = pairs(50, 7)  # powers of two change exponents only
    for loss in LOSSES:
        g = damper_fading(g_R, g_T, auxiliary_loss=loss)
        assert torch.equal(damper_fading(factor * g_R, g_T, auxiliary_loss=loss), factor * g)
    capped = damper.combine(g_R, 1e-3 * g_T, 0.0)  # DAMPER's own weight does depend on it
    rescaled = damper.combine(factor * g_R, 1e-3 * g_T, 0.0)
    assert not torch.allclose(rescaled, factor * capped, rtol=1e-4, atol=0)


def test_the_auxiliary_gradients_length_has_no_effect() -> None:
    g_R, g_T = pairs(50, 7)
    g = damper_fading(g_R, g_T, auxiliary_loss=0.01)
    assert torch.equal(damper_fading(g_R, 2.0**-30 * g_T, auxiliary_loss=0.01), g)


def test_the_added_part_fades_with_the_loss() -> None:
    g_R, g_T = pairs(50, 7)
    added = [
        (damper_fading(g_R, g_T, auxiliary_loss=loss) - g_R).norm(dim=-1)
        for loss in (1e-2, 1e-4, 1e-6)
    ]
    for longer, shorter in pairwise(added):
        torch.testing.assert_close(longer, 10 * shorter, rtol=1e-9, atol=0)


def test_half_precision_losses_and_other_dtypes() -> None:
    g_R, g_T = pairs(3, 5, torch.bfloat16)
    loss = torch.tensor([0.0, 0.25, 0.0625], dtype=torch.bfloat16)
    whole = damper_fading(g_R, g_T, auxiliary_loss=loss.double(), full_change=1.0)
    assert torch.equal(damper_fading(g_R, g_T, auxiliary_loss=loss, full_change=1.0), whole)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (None, "auxiliary_loss must be a number or a tensor, but None was given"),
        ("0.1", "auxiliary_loss must be a number or a tensor, but '0.1' was given"),
        (torch.tensor(1j), "auxiliary_loss must be a number or a tensor, but tensor"),
        (torch.ones(3), r"auxiliary_loss must broadcast over the leading axes \(2,\), but has sha"),
    ],
)
def test_a_loss_that_is_no_number_per_agent(bad: Any, message: str) -> None:
    with pytest.raises(DamperError, match=f"^{message}"):
        damper_fading(torch.ones(2, 3), torch.ones(2, 3), auxiliary_loss=bad)


@pytest.mark.parametrize("rule", ["damper-fading", "damper,damper-fading"])
def test_a_forgotten_loss_is_told(rule: str) -> None:
    ones = torch.ones(3)
    message = r"^auxiliary_loss must be given for damper.*fading, .* damper.backward, which does\.$"
    with pytest.raises(DamperError, match=message):
        combine_reported(rule, ones, ones)
    with pytest.raises(DamperError, match=message):
        combine_single(rule, [ones], [ones])
    with pytest.raises(TypeError, match="auxiliary_loss"):
        damper_fading(ones, ones)


def shrinking(
    primary: Tensor,
    auxiliary: Tensor,
    state: Any = None,
    *,
    auxiliary_loss: Any,
    times: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """A rule with memory, whose step is the auxiliary times the smallest loss so far."""
    least = auxiliary_loss if state is None else torch.minimum(state, auxiliary_loss)
    return primary + times * least.unsqueeze(-1) * auxiliary, least


def test_a_rule_of_ones_own_may_read_the_loss() -> None:
    assert reads_loss(shrinking) and settings_of(shrinking) == {"times": 1.0}
    g_R, g_T = torch.zeros(2, 3), torch.ones(2, 3)
    report: GradientReport | None = None
    for losses, least in (([0.5, 0.2], [0.5, 0.2]), ([0.25, 0.4], [0.25, 0.2])):
        g, report = combine_reported(
            shrinking,
            g_R,
            g_T,
            report and report.state,
            auxiliary_loss=torch.tensor(losses),
            times=2.0,
        )
        assert torch.equal(g[:, 0], 2 * torch.tensor(least))
    (start,) = state_tensors(initial_state(shrinking, g_R))
    assert torch.equal(start, torch.zeros(2))


def test_backward_passes_the_losses_value_without_its_graph() -> None:
    seen: list[Tensor] = []

    def rule(primary: Tensor, auxiliary: Tensor, *, auxiliary_loss: Tensor) -> Tensor:
        seen.append(auxiliary_loss)
        return primary + auxiliary_loss * auxiliary

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    damper.backward(x.sum(), x.square().sum().reshape(1), x, rule=rule)
    assert seen[0].shape == () and not seen[0].requires_grad and float(seen[0]) == 5.0
    assert x.grad is not None and x.grad.tolist() == [11.0, 21.0]


def test_the_loss_may_be_mapped_alone() -> None:
    g_R, g_T = pairs(1, 6, torch.float32)
    losses = torch.linspace(0, 0.1, 5)

    def push(loss: Tensor) -> Tensor:
        return combine_single("damper-fading", [g_R[0]], [g_T[0]], auxiliary_loss=loss)[0][0]

    batch = damper_fading(g_R.expand(5, -1), g_T.expand(5, -1), auxiliary_loss=losses)
    torch.testing.assert_close(torch.func.vmap(push)(losses), batch, rtol=1e-6, atol=1e-6)
