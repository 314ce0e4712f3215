"""Measures of recorded logs: signals whose answer is known, loops whose fault is known."""

from __future__ import annotations

import numpy as np
import pytest

from damper.errors import DamperError
from damper.inspection import Inspection, Log, inspect_log
from damper.inspection.measures import coherence

DT = 0.02
TIME = np.arange(1000) * DT


def log_of(actions, observations=None, period: float | None = DT) -> Log:
    actions = np.column_stack([actions])
    observed = np.empty((len(actions), 0)) if observations is None else observations
    observed = np.column_stack([observed])
    action_names = tuple(f"a{i}" for i in range(actions.shape[1]))
    observation_names = tuple(f"o{i}" for i in range(observed.shape[1]))
    return Log(actions, action_names, observed, observation_names, period)


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape or len(TIME))


def test_a_sine_of_three_hertz() -> None:
    (report,) = inspect_log(log_of(0.5 * np.sin(2 * np.pi * 3 * TIME))).actions
    assert report.dominant_frequency == pytest.approx(3.0)
    assert report.power_above < 1e-6 and report.cause == "quiet"
    # A sine covers four amplitudes per period.
    assert report.change_per_second == pytest.approx(4 * 0.5 * 3, rel=0.01)
    assert report.mean_change == pytest.approx(4 * 0.5 * 3 * DT, rel=0.01)
    assert report.saturation is None and report.shaking_frequency is None
    (fast,) = inspect_log(log_of(0.5 * np.sin(2 * np.pi * 3 * TIME)), above=2.0).actions
    assert fast.power_above > 0.999 and fast.shaking_frequency == pytest.approx(3.0)
    assert fast.cause == "unknown"


def test_without_a_period_frequencies_are_per_step() -> None:
    (report,) = inspect_log(log_of(np.sin(2 * np.pi * 3 * TIME), period=None)).actions
    assert report.dominant_frequency == pytest.approx(3.0 * DT)
    assert report.change_per_second is None


def test_a_square_wave_between_the_bounds_saturates() -> None:
    square = np.where(np.sin(2 * np.pi * 2 * TIME + 0.01) > 0, 3.0, -1.0)
    (report,) = inspect_log(log_of(square), low=-1.0, high=3.0).actions
    assert report.saturation == 1.0
    assert report.dominant_frequency == pytest.approx(2.0)
    # 2 Hz for 20 s: two jumps over the whole range per period.
    assert report.mean_change == pytest.approx(2 * 2 * DT, rel=0.05)
    (half,) = inspect_log(log_of(square), low=-1.0, high=7.0).actions
    assert half.saturation == pytest.approx((square == -1.0).mean())


def test_bounds_of_each_action() -> None:
    reports = inspect_log(
        log_of(np.column_stack([noise(0), 10 * noise(0)])), low=[-1, -10], high=[1, 10]
    ).actions
    assert reports[0].mean_change == pytest.approx(reports[1].mean_change)
    assert reports[1].change_per_second == pytest.approx(10 * reports[0].change_per_second)


@pytest.mark.parametrize("delay", [0, 3, -4])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_lag_of_a_delayed_copy(delay: int, sign: float) -> None:
    action = noise(1)
    observations = np.column_stack([noise(2), sign * np.roll(action, delay)])
    (report,) = inspect_log(log_of(action, observations)).actions
    assert report.observation == "o1" and report.coherence > 0.8
    assert report.lag == pytest.approx(delay * DT)
    assert report.cause == "policy"  # of all frequencies: passed on, no oscillation


def test_unrelated_signals_are_not_coherent() -> None:
    for seed in range(20):
        observations = noise(100 + seed, len(TIME), 30)
        (report,) = inspect_log(log_of(noise(seed), observations)).actions
        assert report.cause == "policy" and report.observation is None and report.lag is None
    _, values, segments = coherence(noise(0), noise(1, len(TIME), 50))
    assert values.mean() == pytest.approx(1 / segments, rel=0.5)
    assert (values >= 0).all() and (values <= 1 + 1e-12).all()


def joint(gain: float, delay: int, sensor_noise: float, seed: int = 0) -> Inspection:
    """A motor moves a joint; a policy drives it to a target from a delayed, noisy observation."""
    rng = np.random.default_rng(seed)
    position, speed, actions, observations = 0.0, 0.0, [], []
    sent = [0.0] * (delay + 1)
    for time in TIME:
        observation = position + sensor_noise * rng.standard_normal()
        action = np.clip(gain * (0.5 * np.sin(2 * np.pi * 0.3 * time) - observation), -1, 1)
        sent = [*sent[1:], action]
        for _ in range(10):  # a motor with a time constant of 30 ms, friction, and a spring
            speed += DT / 10 * (40.0 * sent[0] - 8.0 * speed - 10.0 * position)
            position += DT / 10 * speed
        actions.append(action)
        observations.append(observation)
    return inspect_log(log_of(actions, observations), low=-1.0, high=1.0, above=1.0)


def test_a_loop_with_delay_oscillates() -> None:
    (report,) = joint(gain=8.0, delay=3, sensor_noise=0.002).actions
    assert report.cause == "loop" and report.coherence > 0.9
    assert 1.0 < report.shaking_frequency < 8.0


def test_a_policy_that_amplifies_its_sensor_s_noise_shakes() -> None:
    (report,) = joint(gain=1.0, delay=0, sensor_noise=0.3).actions
    assert report.cause == "policy" and report.observation == "o0"
    assert report.lag == 0.0  # it answers in the same step


def test_the_same_joint_with_a_gentle_policy_is_quiet() -> None:
    (report,) = joint(gain=1.0, delay=0, sensor_noise=0.0).actions
    assert report.cause == "quiet"


def test_constant_and_short_logs() -> None:
    (report,) = inspect_log(log_of(np.full(50, 0.3))).actions
    assert report.dominant_frequency is None and report.power_above == 0.0
    assert report.cause == "quiet"
    (report,) = inspect_log(log_of(noise(0)[:71], noise(1)[:71])).actions
    assert report.cause == "unknown" and report.coherence is None
    (report,) = inspect_log(log_of(noise(0)[:72], noise(1)[:72])).actions
    assert report.coherence is not None


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"above": 30.0}, "above must be a frequency between 0 and 25"),
        ({"above": 0.0}, "above must be a frequency"),
        ({"low": [0, 0, 0], "high": 1}, "low must be one number, or one for each of the 1 actions"),
        ({"low": 0.0}, "low and high must be given together"),
        ({"low": 1.0, "high": 0.0}, "low must be below high"),
    ],
)
def test_mistakes_get_one_sentence(settings, sentence: str) -> None:
    with pytest.raises(DamperError, match=sentence):
        inspect_log(log_of(noise(0)), **settings)
