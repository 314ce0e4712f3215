"""A recorded log of actions: where it shakes, and whether observations shake with it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from damper.errors import DamperError
from damper.inspection.log import Log
from damper.metrics import dominant_frequency, mean_change, power_above, saturation, smoothness

Array = NDArray[np.float64]
SEGMENTS = 8  # at least, for a coherence
LONGEST_SEGMENT = 256
SHORTEST_LOG = 72  # steps: eight segments of 16 that overlap by half
Cause = Literal["quiet", "policy", "loop", "unknown"]

ABOVE = 0.1  # cycles per step: 5 Hz at a control rate of 50 Hz
SHAKES = 0.05  # share of an action's power above that frequency from which it shakes
COHERENT = 0.5  # least coherence with an observation that moves together with an action
NARROW = 0.5  # share of the power above the frequency from which a peak is an oscillation


@dataclass(frozen=True)
class ActionReport:
    """Measures of one action dimension; None where the log does not tell.

    Frequencies are in Hz and lags in seconds, or in cycles per step and steps without a period.
    """

    name: str  # of the column
    mean_change: float  # mean |Δa| per step, as a share of the range where bounds are given
    change_per_second: float | None  # mean |Δa| per second, in the action's own unit
    sm: float  # the paper's score
    dominant_frequency: float | None  # of the strongest component
    power_above: float  # share of the motion's power above the given frequency
    shaking_frequency: float | None  # of the strongest component above it, if the action shakes
    saturation: float | None  # share of steps at a bound
    coherence: float | None  # the largest with an observation at the shaking frequency, in [0, 1]
    observation: str | None  # the one that it belongs to, if the two move together
    lag: float | None  # by which that observation follows the action; negative if the action does
    # "loop" where it oscillates with an observation at one frequency, "policy" where it shakes
    # otherwise, "unknown" without observations or if the log is too short.
    cause: Cause


class _Together(NamedTuple):
    """What an action's report says of the observations."""

    cause: Cause
    coherence: float | None = None
    observation: str | None = None
    lag: float | None = None


@dataclass(frozen=True)
class Inspection:
    """Reports of all action dimensions, the period, and the frequency above which motion shakes."""

    actions: tuple[ActionReport, ...]
    period: float | None
    above: float

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries, lists and numbers."""
        return asdict(self)


def inspect_log(
    log: Log,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    above: float | None = None,
) -> Inspection:
    """Measure every action of a log; bounds are a number, or one per action.

    ``above`` is the frequency above which motion is shaking, in Hz, or in cycles per step where the
    log has no period; by default a tenth of the control rate.
    """
    if above is None:
        above = ABOVE / (log.period or 1.0)
    nyquist = 0.5 / (log.period or 1.0)
    if not 0 < above < nyquist:
        raise DamperError(
            f"above must be a frequency between 0 and {nyquist:g}, half the control rate, but "
            f"{above:g} was given."
        )
    lows, highs = _bounds("low", low, log), _bounds("high", high, log)
    count = len(log.action_names)
    reports = [_report(log, i, lows[i], highs[i], above) for i in range(count)]
    return Inspection(tuple(reports), log.period, above)


def _report(log: Log, i: int, low: Any, high: Any, above: float) -> ActionReport:
    action = log.actions[:, i]
    share = float(power_above(action, above, log.period))
    shaking = dominant_frequency(action, log.period, above)
    strongest = float(dominant_frequency(action, log.period))
    together = _Together("quiet")
    if share >= SHAKES:
        together = _together(log, i, float(shaking), above)
    return ActionReport(
        name=log.action_names[i],
        mean_change=mean_change(action, low, high),
        change_per_second=mean_change(action) / log.period if log.period else None,
        sm=smoothness(action),
        dominant_frequency=strongest if math.isfinite(strongest) else None,
        power_above=share,
        shaking_frequency=float(shaking) if share >= SHAKES else None,
        saturation=saturation(action, low, high) if low is not None else None,
        **together._asdict(),
    )


def coherence(action: ArrayLike, observations: ArrayLike) -> tuple[Array, Array, int]:
    r"""Magnitude-squared coherence ``|S_ao|² / (S_aa S_oo)`` of an action with each observation.

    Welch's estimate: eight Hann-windowed segments (more for long logs) that overlap by half.

    Returns:
        Frequencies ``[F]`` in cycles per step, coherences ``[F, O]`` in [0, 1], and the number of
        segments: of unrelated signals the coherence is about its reciprocal.
    """
    spectra = _segment_spectra(np.column_stack([action, observations]))
    S_ao = (spectra[..., :1].conj() * spectra[..., 1:]).mean(0)
    power = (np.abs(spectra) ** 2).mean(0)
    product = power[:, :1] * power[:, 1:]
    values = np.abs(S_ao) ** 2 / np.where(product > 0, product, 1.0)
    length = 2 * (spectra.shape[1] - 1)
    return np.arange(spectra.shape[1]) / length, values, len(spectra)


def _segment_spectra(signals: Array) -> NDArray[np.complex128]:
    """Spectra ``[segments, F, signals]`` of overlapping segments, each without its mean."""
    half = min(len(signals) // (SEGMENTS + 1), LONGEST_SEGMENT // 2)
    starts = range(0, len(signals) - 2 * half + 1, half)
    segments = np.stack([signals[start : start + 2 * half] for start in starts])
    window = np.sin(np.pi * (np.arange(2 * half) + 0.5) / (2 * half))[:, None] ** 2
    return np.fft.rfft(window * (segments - segments.mean(1, keepdims=True)), axis=1)


def _together(log: Log, i: int, shaking: float, above: float) -> _Together:
    """How an action that shakes and the observations move at the shaking frequency."""
    count, period = log.observations.shape[1], log.period or 1.0
    if count == 0 or len(log.actions) < SHORTEST_LOG:
        return _Together("unknown")
    action = log.actions[:, i]
    frequencies, values, segments = coherence(action, log.observations)
    k = int(np.abs(frequencies - shaking * period).argmin())
    column = int(values[k].argmax())
    strongest = float(values[k, column])
    # Overlapping segments are not independent; of unrelated signals one in a hundred exceeds this.
    by_chance = 1.0 - (0.01 / count) ** (1.0 / (0.8 * segments - 1.0))
    if strongest < max(COHERENT, by_chance):
        return _Together("policy", strongest)
    power = (np.abs(_segment_spectra(action[:, None])) ** 2).mean(0)[:, 0]
    peak = power[max(k - 2, 0) : k + 3].sum()
    oscillates = peak >= NARROW * power[frequencies > above * period].sum()
    lag = _lag(action, log.observations[:, column], log.period) * period
    cause: Cause = "loop" if oscillates else "policy"
    return _Together(cause, strongest, log.observation_names[column], lag)


def _lag(action: Array, observation: Array, period: float | None) -> int:
    """Steps by which the observation follows the action: where their changes correlate most."""
    changes = [np.diff(signal) - np.diff(signal).mean() for signal in (action, observation)]
    longest = min(len(changes[0]) // 4, round(1.0 / period) if period else 50)
    size = 2 * len(changes[0])
    product = np.fft.rfft(changes[0], size).conj() * np.fft.rfft(changes[1], size)
    correlation = np.fft.irfft(product, size)
    lags = sorted(range(-longest, longest + 1), key=lambda lag: (abs(lag), -lag))
    values = correlation[lags]
    # An observation may count in the other direction; where both fit, it does not.
    if values.max() < 0.8 * np.abs(values).max():
        values = np.abs(values)
    # Of a periodic signal's many equal peaks, the nearest.
    return lags[int(np.argmax(values >= 0.98 * values.max()))]


def _bounds(name: str, bound: ArrayLike | None, log: Log) -> list[Any] | Array:
    """A bound for every action, None where there is none."""
    count = len(log.action_names)
    if bound is None:
        return [None] * count
    values = np.atleast_1d(np.asarray(bound, np.float64))
    if values.shape not in ((1,), (count,)):
        raise DamperError(
            f"{name} must be one number, or one for each of the {count} actions, but {values.size} "
            "were given."
        )
    return np.broadcast_to(values, (count,))
