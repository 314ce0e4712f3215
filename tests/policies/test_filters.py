"""Filters against their recursions by hand, and what they do to the executed action."""

from __future__ import annotations

import numpy as np
import pytest

import damper
from damper.policies.filters import LowPass, SlewRate, parse_filter

ONE, SPAN = np.array([1.0]), np.array([4.0])


def test_low_pass_by_hand():
    # From 1 towards 3 with alpha 0.25: 1 + 0.25 * 2 = 1.5.
    assert LowPass(0.25)(np.array([3.0]), ONE, SPAN) == pytest.approx([1.5])


def test_slew_rate_by_hand():
    # A tenth of the range 4 is 0.4: from 1 towards 3 stops at 1.4, towards 1.2 arrives.
    assert SlewRate(0.1)(np.array([3.0]), ONE, SPAN) == pytest.approx([1.4])
    assert SlewRate(0.1)(np.array([1.2]), ONE, SPAN) == pytest.approx([1.2])


def shaking(obs):
    """Full throttle left and right in turn, told apart by the pendulum's speed."""
    shaking.sign = -shaking.sign
    return np.full((len(obs), 1), 2.0 * shaking.sign, np.float32)


# The low-pass leaves the bound for good after the first step; the slew limit steps off it and back.
@pytest.mark.parametrize(
    ("chosen", "saturated"), [(LowPass(0.2), 1 / 200), (SlewRate(0.05), 100 / 200)]
)
def test_executed_is_smoother_than_raw_and_both_are_reported(chosen, saturated):
    shaking.sign = 1
    record = damper.evaluate(shaking, "Pendulum-v1", episodes=1, filter=chosen).records()[0]
    assert record["raw_mean_change"] == pytest.approx(1.0)
    assert record["raw_saturation"] == 1.0
    assert record["mean_change"] < 0.25
    assert record["saturation"] == pytest.approx(saturated)


def test_the_first_action_passes_and_a_wide_open_filter_changes_nothing():
    shaking.sign = 1
    plain = damper.evaluate(shaking, "Pendulum-v1", episodes=1)
    shaking.sign = 1
    filtered = damper.evaluate(shaking, "Pendulum-v1", episodes=1, filter=LowPass(1.0))
    np.testing.assert_array_equal(plain.episodes[0][0].executed, filtered.episodes[0][0].executed)
    assert "raw_sm" not in plain.records()[0]
    record = filtered.records()[0]
    assert record["raw_sm"] == record["sm"]


def kicked_first(obs):
    """One jump, in the first of the environments only."""
    kicked_first.calls += 1
    actions = np.zeros((len(obs), 1), np.float32)
    actions[0] = 2.0 if kicked_first.calls > 1 else -2.0
    return actions


def test_a_filter_that_bites_in_some_episodes_only_is_reported_in_all():
    kicked_first.calls = 0
    evaluation = damper.evaluate(kicked_first, "Pendulum-v1", episodes=2, filter=SlewRate(0.5))
    bitten, free = evaluation.records()
    assert bitten["raw_max_change"] == 1.0 and bitten["max_change"] == 0.5
    assert free["raw_max_change"] == free["max_change"] == 0.0
    assert evaluation.summary()["all"]["raw_max_change"]["mean"] == 0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("low-pass:0", "alpha must be in"),
        ("slew-rate:-1", "limit must be above 0"),
        ("median:3", "filter must read"),
    ],
)
def test_mistakes_get_one_sentence(text, words):
    with pytest.raises(damper.DamperError, match=words):
        parse_filter(text)


@pytest.mark.parametrize("given", ["0.3", None, [0.1, 0.2]])
def test_a_filter_s_setting_is_a_number(given):
    for kind, words in ((LowPass, "alpha must be in"), (SlewRate, "limit must be above 0")):
        with pytest.raises(damper.DamperError, match=words):
            kind(given)


def test_evaluate_reads_the_text_too():
    records = []
    for chosen in ("low-pass:0.3", LowPass(0.3)):
        kicked_first.calls = 0
        records += damper.evaluate(kicked_first, "Pendulum-v1", episodes=1, filter=chosen).records()
    assert records[0] == records[1] and records[0]["raw_sm"] > records[0]["sm"]
    with pytest.raises(damper.DamperError, match="filter must read low-pass:ALPHA"):
        damper.evaluate(kicked_first, "Pendulum-v1", episodes=1, filter="lowpass")


def test_text_forms():
    assert parse_filter("low-pass:0.3") == LowPass(0.3)
    assert parse_filter("slew-rate:0.1") == SlewRate(0.1)
