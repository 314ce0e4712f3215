"""The paper's lemma and theorems, in float64, against a general solver or plain evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

import damper
from damper import theory
from damper.rules import RULES
from tests.theory_problems import (
    COSINES,
    KINDS,
    closest,
    decades,
    gradient,
    grid,
    normal,
    pairs,
    problem,
    smooth_problem,
    uniform,
    with_cosine,
)

ETAS = (0.0, 0.3, 0.7, 1.0)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class TestLemma:
    """combine = argmin ‖d − g_target‖² subject to ⟨g_R, d⟩ ≥ n_R²."""

    @pytest.mark.parametrize("eta", ETAS)
    def test_a_general_solver_finds_the_same_point(self, eta: float, rng: torch.Generator) -> None:
        g_R, g_T = pairs(rng, 1000, 5)
        _, u_R, s, target = problem(g_R, g_T, eta)
        # In d = g_R + s x: the x closest to (g_target − g_R)/s with ⟨g_R, x⟩ ≥ 0. Well scaled at
        # any ratio.
        wanted, ours = ((d - g_R) / s[:, None] for d in (target, damper.combine(g_R, g_T, eta=eta)))
        for r, t, x in zip(u_R.numpy(), wanted.numpy(), ours.numpy(), strict=True):
            np.testing.assert_allclose(x, closest(t, r), atol=1e-7)

    @pytest.mark.parametrize("eta", ETAS)
    @pytest.mark.parametrize("n", [2, 50])
    def test_thousands_satisfy_the_optimality_conditions(
        self, eta: float, n: int, rng: torch.Generator
    ) -> None:
        g_R, g_T = pairs(rng, 3000, n)
        n_R, u_R, _, target = problem(g_R, g_T, eta)
        g = damper.combine(g_R, g_T, eta=eta)
        slack = ((g * u_R).sum(-1) - n_R) / n_R
        multiplier = ((g - target) * u_R).sum(-1) / n_R
        assert (slack >= -1e-14).all(), "feasible"
        assert (multiplier >= -1e-14).all(), "the multiplier of an inequality is not negative"
        assert (slack * multiplier).abs().max() < 1e-14, (
            "the constraint is tight wherever it pushes"
        )
        off_axis = (g - target) - (multiplier * n_R)[:, None] * u_R
        assert (off_axis.norm(dim=-1) / n_R).max() < 1e-14, "only the constraint moves the target"

    @pytest.mark.parametrize("eta", ETAS)
    def test_no_feasible_point_is_closer_to_the_target(
        self, eta: float, rng: torch.Generator
    ) -> None:
        g_R, g_T = pairs(rng, 2000, 6)
        n_R, u_R, s, target = problem(g_R, g_T, eta)
        g = damper.combine(g_R, g_T, eta=eta)
        for size in (1e-3, 1.0, 1e3):
            d = g + size * s[:, None] * normal(rng, *g.shape)
            d = d + (n_R - (d * u_R).sum(-1)).clamp(min=0)[:, None] * 1.5 * u_R
            excess = (
                (d - target).square().sum(-1)
                - (g - target).square().sum(-1)
                - (d - g).square().sum(-1)
            )
            assert (excess / ((d - target).square().sum(-1) + (s * n_R))).min() > -1e-9

    @pytest.mark.parametrize("eta", ETAS)
    def test_the_added_part_is_bounded_and_smaller_under_conflict(
        self, eta: float, rng: torch.Generator
    ) -> None:
        g_R, g_T = pairs(rng, 4000, 8)
        n_R, _, s, _ = problem(g_R, g_T, eta)
        added = (damper.combine(g_R, g_T, eta=eta) - g_R).norm(dim=-1)
        rounding = 1e-15 * n_R
        assert (added <= s + rounding).all()
        assert (s <= n_R + rounding).all()
        conflict = (g_R * g_T).sum(-1) < -0.01 * n_R * g_T.norm(dim=-1)
        assert conflict.sum() > 1000
        assert (added[conflict] < s[conflict] * (1 - 4e-5)).all()
        torch.testing.assert_close(added[~conflict], s[~conflict], rtol=1e-4, atol=0)


class TestTheorem1:
    """Every step below 1/β along combine's direction strictly decreases a β-smooth primary loss."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("eta", ETAS)
    def test_every_step_below_one_over_beta_descends(
        self, kind: str, eta: float, rng: torch.Generator
    ) -> None:
        c = torch.cat([torch.linspace(-1, 1, 21), torch.tensor(COSINES)])
        c, ratio = (grid.flatten() for grid in torch.meshgrid(c, decades(-6, 6, 13), indexing="ij"))
        for _ in range(4):
            loss, beta = smooth_problem(kind, rng)
            theta = normal(rng, len(c), 6)
            g_R = gradient(loss, theta)
            g = damper.combine(g_R, with_cosine(g_R, c, ratio, rng), eta=eta)
            for step in (1e-4, 0.1, 0.5, 0.9, 1 - 1e-6, uniform(rng, len(c), 1)):
                assert (loss(theta - step / beta * g) < loss(theta)).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_without_a_usable_auxiliary_the_range_is_two_over_beta(
        self, kind: str, rng: torch.Generator
    ) -> None:
        loss, beta = smooth_problem(kind, rng)
        theta = normal(rng, 200, 6)
        g = damper.combine(gradient(loss, theta), torch.zeros_like(theta))
        for step in (0.01, 1.0, 1.99):
            assert (loss(theta - step / beta * g) < loss(theta)).all()

    def test_the_plain_sum_climbs_where_combine_descends(self, rng: torch.Generator) -> None:
        loss, beta = smooth_problem("convex quadratic", rng)
        theta = normal(rng, 200, 6)
        g_R = gradient(loss, theta)
        g_T = with_cosine(g_R, torch.full((200,), -0.9), torch.full((200,), 10.0), rng)
        step = 0.5 / beta
        assert (loss(theta - step * (g_R + g_T)) > loss(theta)).all()
        assert (loss(theta - step * damper.combine(g_R, g_T)) < loss(theta)).all()

    @pytest.mark.parametrize("eta", ETAS)
    def test_the_exact_bound_is_exact_on_isotropic_curvature(
        self, eta: float, rng: torch.Generator
    ) -> None:
        c = torch.linspace(-0.99, 1, 40).repeat_interleave(5)
        ratio = torch.tensor([1e-3, 0.1, 0.5, 1.0, 10.0]).repeat(40)
        loss, beta = smooth_problem("isotropic", rng)
        theta = normal(rng, len(c), 6)
        g_R = gradient(loss, theta)
        g = damper.combine(g_R, with_cosine(g_R, c, ratio, rng), eta=eta)
        bound = theory.step_size_bound(ratio.clamp(max=1) ** (1 - eta), c, beta).unsqueeze(-1)
        assert (loss(theta - (1 - 1e-6) * bound * g) < loss(theta)).all()
        assert (loss(theta - (1 + 1e-6) * bound * g) > loss(theta)).all()

    def test_the_exact_bound_is_never_below_one_over_beta(self) -> None:
        w, c = torch.meshgrid(torch.linspace(0, 1, 101), torch.linspace(-1, 1, 201), indexing="ij")
        bound = theory.step_size_bound(w, c, 4.0)
        assert bound.min() == pytest.approx(0.25, rel=1e-12)
        assert bound.max() == pytest.approx(0.5, rel=1e-12)


class TestFading:
    """What damper-fading keeps of the lemma and of Theorem 1, at weights unrelated to the norms."""

    def fading(self, g_R: Tensor, g_T: Tensor, w: Tensor) -> Tensor:
        return RULES["damper-fading"](g_R, g_T, auxiliary_loss=(0.3 * w).square())

    def test_a_general_solver_finds_the_same_point(self, rng: torch.Generator) -> None:
        g_R, g_T = pairs(rng, 1000, 5)
        n_R, w = g_R.norm(dim=-1), 10 ** (-3 * uniform(rng, 1000))
        added = (self.fading(g_R, g_T, w) - g_R) / (n_R * w)[:, None]
        u_R, wanted = g_R / n_R[:, None], g_T / g_T.norm(dim=-1, keepdim=True)
        for r, t, x in zip(u_R.numpy(), wanted.numpy(), added.numpy(), strict=True):
            np.testing.assert_allclose(x, closest(t, r), atol=1e-7)

    @pytest.mark.parametrize("w", [0.0, 1e-6, 0.3, 1.0])
    def test_steps_descend_up_to_the_bound_and_gains_are_the_closed_form(
        self, w: float, rng: torch.Generator
    ) -> None:
        q, c, g_R, g_T = grid(rng, decades(-6, 6))
        g = self.fading(g_R, g_T, torch.tensor(w))
        beta = 3.0
        bound = theory.step_size_bound(w, c, beta)

        def change(step: Tensor) -> Tensor:
            """Of the loss ``⟨g_R, θ⟩ + β/2 ‖θ‖²`` in a step from 0."""
            return beta / 2 * step.square() * g.square().sum(-1) - step * (g * g_R).sum(-1)

        assert (change(0.999 * bound) < 0).all() and (change(1.001 * bound) > 0).all()
        gain = theory.matched_gain(g, g_R, g_T)
        rounding = 1e-8 * gain.abs() + 1e-14 * q
        assert ((theory.projected_gain(q, c, w) - gain).abs() <= rounding).all()


class TestTheorem2:
    """The matched gain 𝒢, evaluated on vectors, against its closed forms, rates and bounds."""

    def test_matched_gain_by_hand(self) -> None:
        direction, g_R = torch.tensor([[2.0, 1.0], [-1.0, 1.0]]), torch.tensor([1.0, 0.0])
        gain = theory.matched_gain(direction, g_R, torch.tensor([-1.0, 2.0]))
        assert gain[0] == 1.0  # (−2+2)/2 − (−1)/1
        assert gain[1].isnan()  # uphill on the primary: nothing to match

    @pytest.mark.parametrize("eta", ETAS)
    def test_damper_gain_is_the_gain_of_combine(self, eta: float, rng: torch.Generator) -> None:
        q, c, g_R, g_T = grid(rng, decades(-6, 6))
        evaluated = theory.matched_gain(damper.combine(g_R, g_T, eta=eta), g_R, g_T)
        assert (
            (theory.damper_gain(q, c, eta) - evaluated).abs() <= 1e-8 * evaluated.abs() + 1e-14 * q
        ).all()

    @pytest.mark.parametrize("weight", [0.1, 1.0, 10.0])
    def test_scalarization_gain_is_the_gain_of_the_weighted_sum(
        self, weight: float, rng: torch.Generator
    ) -> None:
        q, c, g_R, g_T = grid(rng, decades(-6, 6))
        evaluated, closed = (
            theory.matched_gain(g_R + weight * g_T, g_R, g_T),
            theory.scalarization_gain(q, c, weight),
        )
        well_posed = (1 + weight * q * c).abs() > 1e-6
        assert (closed.isnan() == evaluated.isnan())[well_posed].all()
        kept = well_posed & ~closed.isnan()
        scale = q * (1 + weight * q) / (1 + weight * q * c)
        assert ((closed - evaluated).abs() <= 1e-8 * closed + 1e-13 * scale)[kept].all()

    @pytest.mark.parametrize("c", [-0.9, -0.3, 0.0, 0.3, 0.9])
    def test_slopes_on_log_axes(self, c: float, rng: torch.Generator) -> None:
        q = decades(-9, -6, 13)
        g_R = normal(rng, 1, 5).expand(13, 5)
        g_T = q[:, None] * with_cosine(g_R[:1], torch.tensor([c]), torch.ones(1), rng)

        def slope(direction: Tensor) -> float:
            return float(
                np.polyfit(
                    q.log().numpy(), theory.matched_gain(direction, g_R, g_T).log().numpy(), 1
                )[0]
            )

        for eta in (0.0, 0.2, 0.5, 0.8, 1.0):
            assert slope(damper.combine(g_R, g_T, eta=eta)) == pytest.approx(2 - eta, abs=0.02)
        for weight in (0.1, 1.0):
            assert slope(g_R + weight * g_T) == pytest.approx(2, abs=1e-3)

    @pytest.mark.parametrize("eta", ETAS)
    def test_two_sided_bounds_hold_on_vectors(self, eta: float, rng: torch.Generator) -> None:
        q, c, g_R, g_T = grid(rng, decades(-6, -0.01))
        ours = theory.matched_gain(damper.combine(g_R, g_T, eta=eta), g_R, g_T)
        lower, upper = theory.damper_gain_bounds(q, c, eta)
        rounding = 1e-14 * q
        assert (lower - rounding <= ours).all()
        assert (ours <= upper + rounding).all()
        assert (upper == 2 * lower).all()
        for weight in (0.1, 0.9):
            theirs = theory.matched_gain(g_R + weight * g_T, g_R, g_T)
            lower, upper = theory.scalarization_gain_bounds(q, c, weight, 0.05)
            assert (lower - rounding <= theirs).all()
            assert (theirs <= upper + rounding).all()

    @pytest.mark.parametrize("eta", ETAS)
    @pytest.mark.parametrize("weight", [0.1, 0.9])
    def test_the_ratio_and_its_bounds_hold_on_vectors(
        self, eta: float, weight: float, rng: torch.Generator
    ) -> None:
        q, c, g_R, g_T = grid(rng, decades(-6, -0.01))
        kept = c.abs() < 1 - 1e-6  # collinear gradients gain nothing either way
        q, c, g_R, g_T = q[kept], c[kept], g_R[kept], g_T[kept]
        ours, theirs = damper.combine(g_R, g_T, eta=eta), g_R + weight * g_T
        evaluated = theory.matched_gain(ours, g_R, g_T) / theory.matched_gain(theirs, g_R, g_T)
        torch.testing.assert_close(
            theory.gain_ratio(q, c, eta, weight), evaluated, rtol=1e-6, atol=0
        )
        lower, upper = theory.gain_ratio_bounds(q, eta, weight, 0.05)
        assert (lower <= evaluated).all()
        assert (evaluated <= upper).all()

    def test_bounds_of_the_ratio_by_hand(self) -> None:
        # q^(−η)/λ = 0.04^(−½)/4 = 5/4, times δ/2 = 1/5 and 2 − δ = 8/5.
        assert [float(b) for b in theory.gain_ratio_bounds(0.04, 0.5, 4.0, 0.4)] == pytest.approx(
            [0.25, 2.0]
        )

    @pytest.mark.parametrize("weight", [0.1, 1.0, 100.0])
    def test_a_weak_enough_gradient_beats_any_fixed_weight(
        self, weight: float, rng: torch.Generator
    ) -> None:
        _, c, g_R, g_T = grid(rng, torch.tensor([1e-8]))
        ours = theory.matched_gain(damper.combine(g_R, g_T, eta=0.5), g_R, g_T)
        theirs = theory.matched_gain(g_R + weight * g_T, g_R, g_T)
        assert (ours > 10 * theirs)[c.abs() < 0.95].all()

    def test_the_gain_never_falls_as_eta_rises(self, rng: torch.Generator) -> None:
        g_R, g_T = pairs(rng, 2000, 5)
        etas = torch.linspace(0, 1, 21)
        directions = damper.combine(
            g_R.expand(21, -1, -1), g_T.expand(21, -1, -1), eta=etas[:, None]
        )
        gains = theory.matched_gain(directions, g_R, g_T)
        ratio = g_T.norm(dim=-1) / g_R.norm(dim=-1)
        rises = gains.diff(dim=0)
        assert (rises >= -1e-14 * ratio).all()
        cosine = (g_R * g_T).sum(-1) / (g_R.norm(dim=-1) * g_T.norm(dim=-1))
        assert (rises[:, (ratio < 0.9) & (cosine.abs() < 0.95)] > 0).all()


class TestMatchedProgress:
    """``L_T(θ − α g_R) − L_T(θ − α d̂) = α n_R² 𝒢(d) + o(α)`` on a small tanh policy."""

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("name", ["damper", "scalarization"])
    @pytest.mark.parametrize("conflict", [False, True])
    def test_the_expansion_error_vanishes_faster_than_the_step(
        self, seed: int, name: str, conflict: bool
    ) -> None:
        rng = torch.Generator().manual_seed(seed)
        obs, theta = normal(rng, 32, 3), 0.5 * normal(rng, 40)
        next_obs = obs + 0.3 * normal(rng, 32, 3)

        def policy(theta: Tensor, s: Tensor) -> Tensor:
            return torch.tanh(torch.tanh(s @ theta[:24].view(3, 8)) @ theta[24:].view(8, 2))

        # A primary loss that asks for livelier actions pulls against the temporal one; calmer
        # actions, with it.
        wanted = (2.0 if conflict else 0.0) * policy(theta, obs) + 0.1 * normal(rng, 32, 2)

        def primary(theta: Tensor) -> Tensor:
            return (policy(theta, obs) - wanted).square().sum(-1).mean()

        def temporal(theta: Tensor) -> Tensor:
            return (policy(theta, next_obs) - policy(theta, obs)).square().sum(-1).mean()

        g_R, g_T = gradient(primary, theta), gradient(temporal, theta)
        assert bool(g_R @ g_T < 0) == conflict
        d = damper.combine(g_R, g_T, eta=0.5) if name == "damper" else g_R + 0.5 * g_T
        matched = g_R.square().sum() / (g_R @ d) * d
        predicted = g_R.square().sum() * theory.matched_gain(d, g_R, g_T)
        steps = 0.5 ** torch.arange(8, 18)
        measured = torch.stack(
            [temporal(theta - a * g_R) - temporal(theta - a * matched) for a in steps]
        )
        relative = (measured / steps - predicted).abs() / predicted
        assert predicted > 0
        assert relative[-1] < 1e-3
        order = np.polyfit(steps.log().numpy(), (relative * steps).log().numpy(), 1)[0]
        assert order == pytest.approx(2, abs=0.1)  # twice differentiable: the error is O(α²)


class TestScales:
    """Gains are products of ratios: neither scale nor dtype may take them out of range."""

    def test_float32_arguments_give_float64_gains(self) -> None:
        for number in (1e-30, 1e30):
            q, c = (
                torch.tensor([number], dtype=torch.float32),
                torch.tensor([0.5], dtype=torch.float32),
            )
            exact, weight = float(q), 0.1 / number
            for mine, other in [
                (theory.damper_gain(q, c, 0.0), theory.damper_gain(exact, 0.5, 0.0)),
                (theory.scalarization_gain(q, c, 1.0), theory.scalarization_gain(exact, 0.5, 1.0)),
                (theory.gain_ratio(q, c, 1.0, weight), theory.gain_ratio(exact, 0.5, 1.0, weight)),
                (
                    theory.damper_gain_bounds(q, c, 0.0)[0],
                    theory.damper_gain_bounds(exact, 0.5, 0.0)[0],
                ),
                (
                    theory.gain_ratio_bounds(q, 1.0, weight, 0.5)[1],
                    theory.gain_ratio_bounds(exact, 1.0, weight, 0.5)[1],
                ),
            ]:
                assert mine.dtype == torch.float64
                assert float(mine) == float(other) and 0 < float(mine) < float("inf")

    def test_the_weighted_sum_of_a_huge_auxiliary(self) -> None:
        assert float(theory.scalarization_gain(1e200, 0.5, 1.0)) == pytest.approx(1.5e200)
        assert float(theory.scalarization_gain(1e200, 1.0, 1.0)) == 0.0

    @pytest.mark.parametrize("scale", [1e-200, 1e200])
    def test_matched_gain_has_no_scale(self, scale: float) -> None:
        direction, g_R, g_T = (
            torch.tensor([2.0, 1.0]),
            torch.tensor([1.0, 0.0]),
            torch.tensor([-1.0, 2.0]),
        )
        assert float(
            theory.matched_gain(scale * direction, scale * g_R, scale * g_T)
        ) == pytest.approx(1.0)
        assert float(theory.matched_gain(direction, g_R, scale * g_T)) == pytest.approx(scale)


class TestArguments:
    def test_floats_and_tensors_agree_and_broadcast(self) -> None:
        gains = theory.damper_gain(torch.tensor([0.1, 0.2]), -0.5, torch.tensor([[0.0], [1.0]]))
        assert gains.shape == (2, 2)
        assert float(gains[1, 0]) == pytest.approx(0.075)  # 0.1 · (1 − ¼)
        assert float(theory.damper_gain(0.1, -0.5, 1.0)) == float(gains[1, 0])

    @pytest.mark.parametrize(
        ("call", "named"),
        [
            (lambda: theory.damper_gain(0.0, 0.0, 1.0), "q must be positive"),
            (lambda: theory.damper_gain(0.5, 1.1, 1.0), "c must be in"),
            (lambda: theory.damper_gain(0.5, 0.0, -0.1), "eta must be in"),
            (lambda: theory.damper_gain(float("nan"), 0.0, 1.0), "q must be positive"),
            (lambda: theory.scalarization_gain(0.5, 0.0, 0.0), "weight must be positive"),
            (
                lambda: theory.scalarization_gain_bounds(0.5, 0.0, 1.0, 1.0),
                "delta must be strictly",
            ),
            (lambda: theory.gain_ratio_bounds(0.5, 1.0, 2.0, 0.1), "delta must be less"),
            (lambda: theory.step_size_bound(1.5, 0.0, 1.0), "w must be in"),
            (lambda: theory.projected_gain(0.5, 0.0, 1.5), "w must be in"),
            (lambda: theory.step_size_bound(1.0, 0.0, 0.0), "beta must be positive"),
            (
                lambda: theory.step_size_bound(1.0, 0.0, float("inf")),
                "beta must be positive and finite, but inf",
            ),
        ],
    )
    def test_bad_arguments_are_named(self, call: Callable[[], object], named: str) -> None:
        with pytest.raises(ValueError, match=named):
            call()
