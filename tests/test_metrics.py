"""The measures against values worked out by hand and against direct Fourier sums."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from damper import metrics
from damper.metrics import collapse_warning, smoothness, spectral_roughness

ALTERNATING = np.tile([1.0, -1.0], 50)
signals = st.integers(1, 40).flatmap(
    lambda T: arrays(np.float64, (T, 2), elements=st.floats(-1, 1, allow_subnormal=False))
)
BOUNDED: list[Callable[..., float]] = [
    metrics.mean_change,
    metrics.max_change,
    metrics.total_variation,
    metrics.spectral_roughness,
]


def dft(x: np.ndarray, k: int) -> complex:
    """Bin k of the un-normalised transform, as the sum that defines it."""
    return sum(
        complex(value) * cmath.exp(-2j * cmath.pi * k * t / len(x)) for t, value in enumerate(x)
    )


def noise(T: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (T, 16))


class TestSmoothness:
    def test_by_hand(self) -> None:
        # T=4: only k=0,1 count. X_1 of (0, 1, 0, 0) is −i, so sm = 2/4 · 1 · 1/4.
        assert smoothness([0.0, 1.0, 0.0, 0.0]) == pytest.approx(0.125)
        # T=5 keeps k=0,1: X_1 of an impulse is 1, so sm = 2/5 · 1/5.
        assert smoothness([1.0, 0.0, 0.0, 0.0, 0.0]) == pytest.approx(0.08)
        # Dimensions are averaged, not summed.
        assert smoothness([[0.0, 3.0], [1.0, 3.0], [0.0, 3.0], [0.0, 3.0]]) == pytest.approx(0.0625)

    @pytest.mark.parametrize("T", [2, 3, 7, 8, 31, 32])
    def test_equals_the_direct_sum(self, T: int) -> None:
        actions = 3 * noise(T)
        direct = [
            2 / T * sum(abs(dft(column, k)) * k / T for k in range(T // 2)) for column in actions.T
        ]
        assert smoothness(actions) == pytest.approx(np.mean(direct), rel=1e-12, abs=1e-15)

    def test_fewer_than_two_actions_score_nothing(self) -> None:
        assert [
            smoothness([]),
            smoothness(np.zeros((0, 3))),
            smoothness([0.7]),
            smoothness([[0.7, 2.0]]),
        ] == [0] * 4

    def test_hole_one_it_grows_with_the_square_root_of_the_length(self) -> None:
        lengths = np.array([100, 200, 400, 800, 1600, 3200])
        slope, _ = np.polyfit(np.log(lengths), np.log([smoothness(noise(T)) for T in lengths]), 1)
        assert slope == pytest.approx(0.5, abs=0.03)

    def test_hole_two_the_fastest_oscillation_scores_nothing(self) -> None:
        assert smoothness(ALTERNATING) == pytest.approx(0, abs=1e-12)
        # One step less moves it off the missing bin, to the nearest one that counts.
        assert smoothness(ALTERNATING[:-1]) > 0.5


class TestSpectralRoughness:
    def test_by_hand(self) -> None:
        assert spectral_roughness(ALTERNATING) == pytest.approx(1)
        assert spectral_roughness([5.0] * 9) == pytest.approx(0, abs=1e-12)
        sine = 0.6 * np.sin(2 * np.pi * np.arange(100) * 10 / 100)
        assert spectral_roughness(sine) == pytest.approx(0.6 * 0.2 / math.sqrt(2))
        # rms over dimensions: √((1² + 0²)/2)
        assert spectral_roughness(np.stack([ALTERNATING, 0 * ALTERNATING], 1)) == pytest.approx(
            math.sqrt(0.5)
        )

    @pytest.mark.parametrize("T", [1, 2, 3, 7, 8, 31])
    def test_equals_the_direct_sum_over_the_full_spectrum(self, T: int) -> None:
        # Over all T bins no weight c_k is needed: bin k and bin T−k have the same frequency.
        actions = noise(T)
        direct = [
            sum(abs(dft(column, k)) ** 2 / T**2 * (2 * min(k, T - k) / T) ** 2 for k in range(T))
            for column in actions.T
        ]
        assert spectral_roughness(actions) == pytest.approx(math.sqrt(np.mean(direct)), rel=1e-12)

    def test_noise_scores_the_same_at_any_length(self) -> None:
        sigma = math.sqrt(1 / 3)
        for T in (50, 200, 1000, 4001):
            assert spectral_roughness(noise(T)) == pytest.approx(sigma / math.sqrt(3), rel=0.03)

    def test_the_jump_at_the_end_of_a_ramp_fades(self) -> None:
        lengths = np.array([100, 400, 1600])
        slope, _ = np.polyfit(
            np.log(lengths), np.log([spectral_roughness(np.linspace(-1, 1, T)) for T in lengths]), 1
        )
        assert slope == pytest.approx(-0.5, abs=0.02)


class TestChanges:
    ACTIONS = (
        [[0.0, 2.0], [1.0, 2.0], [-1.0, -2.0]],
        [-1.0, -2.0],
        [1.0, 2.0],
    )  # |Δ| / range: ½ 0; 1 1

    def test_by_hand(self) -> None:
        assert metrics.mean_change(*self.ACTIONS) == pytest.approx((0.5 + 0 + 1 + 1) / 4)
        assert metrics.max_change(*self.ACTIONS) == pytest.approx(1)
        assert metrics.total_variation(*self.ACTIONS) == pytest.approx((1.5 + 1) / 2)
        assert metrics.mean_change(self.ACTIONS[0]) == pytest.approx((1 + 0 + 2 + 4) / 4)

    def test_saturation_by_hand(self) -> None:
        assert metrics.saturation([[-1.0, 0.5], [0.9989, 1.2]], -1, 1) == pytest.approx(3 / 4)
        assert metrics.saturation([0.9, 1.0, 0.0, -0.7], -1, 1, tolerance=0.1) == pytest.approx(
            2 / 4
        )
        assert metrics.saturation([0.999, 1.0], -1, 1, tolerance=0) == pytest.approx(1 / 2)


class TestSpectrum:
    def test_a_sine_shows_its_amplitude_at_its_frequency(self) -> None:
        t = np.arange(200) * 0.05
        frequencies, amplitude = metrics.spectrum(
            0.25 + 0.7 * np.sin(2 * np.pi * 1.5 * t), period=0.05
        )
        assert amplitude.shape == frequencies.shape == (101,)
        assert frequencies[amplitude.argmax()] == pytest.approx(1.5)
        assert amplitude.max() == pytest.approx(0.7)
        assert amplitude[0] == pytest.approx(0.25)
        assert frequencies[-1] == pytest.approx(10)  # Nyquist: half of 20 Hz

    def test_nyquist_is_half_a_cycle_per_step(self) -> None:
        frequencies, amplitude = metrics.spectrum(ALTERNATING[:, None])
        assert (frequencies[-1], amplitude[-1, 0]) == (0.5, pytest.approx(1))

    @given(signals)
    def test_parseval(self, actions: np.ndarray) -> None:
        _, amplitude = metrics.spectrum(actions)
        weight = np.full(len(amplitude), 0.5)
        weight[[0, -1] if len(actions) % 2 == 0 else [0]] = 1.0
        np.testing.assert_allclose(weight @ amplitude**2, (actions**2).mean(0), atol=1e-12)


class TestProperties:
    @given(signals)
    def test_within_the_bounds_scores_lie_between_zero_and_one(self, actions: np.ndarray) -> None:
        for measure in (
            metrics.mean_change,
            metrics.max_change,
            metrics.spectral_roughness,
            metrics.saturation,
        ):
            assert 0 <= measure(actions, -1, 1) <= 1 + 1e-12

    @given(signals, st.floats(-5, 5), st.floats(0.1, 10))
    def test_bounds_free_the_score_of_units_and_offset(
        self, actions: np.ndarray, offset: float, scale: float
    ) -> None:
        for measure in BOUNDED:
            moved = measure(offset + scale * actions, offset - scale, offset + scale)
            assert moved == pytest.approx(measure(actions, -1, 1), abs=1e-9)
        assert smoothness(offset + scale * actions) == pytest.approx(
            scale * smoothness(actions), abs=1e-9
        )

    @given(signals)
    def test_playing_backwards_changes_nothing(self, actions: np.ndarray) -> None:
        for measure in (*BOUNDED, smoothness):
            assert measure(actions[::-1]) == pytest.approx(measure(actions), abs=1e-9)

    @given(signals)
    def test_mean_change_and_total_variation_tell_one_story(self, actions: np.ndarray) -> None:
        assert metrics.total_variation(actions) == pytest.approx(
            metrics.mean_change(actions) * (len(actions) - 1)
        )
        assert metrics.mean_change(actions) <= metrics.max_change(actions) * (1 + 1e-12)

    @given(st.floats(-100, 100), st.integers(1, 50))
    def test_a_constant_is_smooth(self, value: float, T: int) -> None:
        for measure in (*BOUNDED, smoothness):
            assert measure([value] * T) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "lengths", "constant"),
    [
        ([0.0, 9e-5], [200, 200], True),
        ([0.0, 2e-4], [200, 200], False),  # it reacts in one episode, whatever the mean of both
        ([0.0, 0.0], [1, 200], True),
        ([0.0, 0.0], [1, 1], False),  # a single action has not changed, nor could it
        ([0.0, math.nan], [200, 200], False),
    ],
)
def test_a_policy_is_constant_if_no_episode_shows_it_reacting(changes, lengths, constant) -> None:
    assert metrics.is_constant(changes, lengths) is constant


class TestArguments:
    def test_arrays_tensors_and_lists_agree(self) -> None:
        actions = noise(20).astype(np.float32)
        expected = metrics.summary(actions, -1, 1)
        tensor = torch.tensor(actions, requires_grad=True)
        assert metrics.summary(tensor, torch.full((16,), -1.0), [1.0] * 16) == expected
        assert metrics.summary(actions.tolist(), -1, 1) == expected
        assert smoothness(actions[:, 0]) == smoothness(actions[:, :1])

    def test_summary_holds_every_measure(self) -> None:
        scores = metrics.summary(ALTERNATING, -1, 1)
        assert list(scores) == [
            "length",
            "sm",
            "mean_change",
            "max_change",
            "total_variation",
            "spectral_roughness",
            "saturation",
        ]
        assert list(scores.values()) == pytest.approx([100, 0, 1, 1, 99, 1, 1], abs=1e-12)

    def test_one_action_scores_zero(self) -> None:
        assert [*metrics.summary([[0.3, 0.2]], -1, 1).values()] == [1, 0, 0, 0, 0, 0, 0]

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: smoothness([0.0, math.nan]), "actions must be finite"),
            (lambda: metrics.mean_change([]), "at least one action"),
            (lambda: metrics.summary([], -1, 1), "at least one action"),
            (lambda: smoothness(np.zeros((5, 0))), "at least one action"),
            (lambda: smoothness(np.zeros((2, 5, 1))), "one episode at a time"),
            (lambda: smoothness(0.5), "one episode at a time"),
            (lambda: smoothness([[1.0], [1.0, 2.0]]), "regular array of numbers"),
            (lambda: smoothness(["left"]), "regular array of numbers"),
            (
                lambda: smoothness([torch.ones(1, requires_grad=True)] * 2),
                "regular array of numbers, .* torch.stack",
            ),
            (lambda: metrics.mean_change([0.0, 1.0], low=0), "given together"),
            (
                lambda: metrics.mean_change([0.0, 1.0], 1, -1),
                "low must be below high, but low=1 and high=-1",
            ),
            (lambda: metrics.mean_change([[0.0, 1.0]], [0, 1], [1, 1]), "for dimension 1"),
            (
                lambda: metrics.mean_change([0.0, 1.0], -math.inf, math.inf),
                "low must be finite, .* clipped to",
            ),
            (
                lambda: metrics.mean_change([0.0, 1.0], [0, 0, 0], 1),
                "low must be one number or one per dimension",
            ),
            (lambda: metrics.saturation([0.0], -1, 1, tolerance=0.5), "tolerance must be"),
            (lambda: metrics.saturation([0.0], None, None), "needs low and high"),
            (lambda: metrics.spectrum([0.0], period=0.0), "period must be"),
        ],
    )
    def test_bad_input_is_named_in_one_sentence(
        self, call: Callable[[], object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


class TestPhysicalUnits:
    TIME = np.arange(500) * 0.02

    def test_a_sine_of_three_hertz(self) -> None:
        sine = np.sin(2 * np.pi * 3 * self.TIME)
        assert metrics.dominant_frequency(sine, 0.02) == pytest.approx(3.0)
        assert metrics.dominant_frequency(sine) == pytest.approx(0.06)
        assert metrics.power_above(sine, 2.0, 0.02) > 0.999
        assert metrics.power_above(sine, 4.0, 0.02) < 1e-6
        assert metrics.mean_rate(sine, 0.02) == pytest.approx(12.0, rel=0.01)
        assert metrics.mean_rate(sine, 0.02, -1, 1) == pytest.approx(6.0, rel=0.01)

    def test_dimensions_are_measured_one_by_one(self) -> None:
        pair = np.column_stack([3 + np.sin(2 * np.pi * f * self.TIME) for f in (1, 10)])
        pair = np.column_stack([pair, np.full(500, 0.1)])
        frequencies = metrics.dominant_frequency(pair, 0.02)
        assert np.allclose(frequencies, [1, 10, np.nan], equal_nan=True)
        assert np.allclose(metrics.power_above(pair, 5.0, 0.02), [0, 1, 0], atol=1e-6)
        assert metrics.dominant_frequency(pair[:, :2].sum(1), 0.02, above=5.0) == 10.0

    def test_a_drift_is_slow(self) -> None:
        drift = np.linspace(-1, 1, 500)
        assert metrics.power_above(drift, 1.0, 0.02) < 1e-4

    def test_white_noise_is_spread_evenly(self) -> None:
        noise = np.random.default_rng(0).standard_normal(5000)
        assert metrics.power_above(noise, 0.1) == pytest.approx(0.8, abs=0.03)

    @pytest.mark.parametrize("measure", [metrics.mean_rate, metrics.dominant_frequency])
    def test_the_period_is_positive(self, measure: Callable[..., float]) -> None:
        with pytest.raises(ValueError, match="period must be a positive number of seconds"):
            measure([0.0, 1.0], period=-0.02)


@pytest.mark.parametrize(
    ("changes", "lengths", "warned"),
    [
        ([0.0] * 10, [50] * 10, True),
        ([0.3] * 20 + [5e-5] * 10, [50] * 30, True),
        ([0.0] * 9, [50] * 9, False),
        ([0.0] * 9 + [2e-4], [50] * 10, False),
        ([0.0] * 10, [1] * 10, False),
    ],
)
def test_ten_constant_episodes_in_a_row_are_a_collapse(
    changes: list[float], lengths: list[int], warned: bool
) -> None:
    sentence = collapse_warning(changes, lengths)
    assert (sentence is not None) == warned
    if sentence:
        assert "smooth less, or lower learning_rate, and start again" in sentence
        assert "lower eta (now 1), or raise batch_size" in str(
            collapse_warning(changes, lengths, 1.0, True)
        )
