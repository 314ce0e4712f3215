r"""Intervals over seeds, and the change of a mean relative to plain's.

The unit is the seed, never the episode: ten episodes of one policy are not ten experiments. Each
interval is the one that covered best with five and ten seeds in a simulation
(``docs/statistics.md``). None draws a random number.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from damper.errors import MissingExtraError
from damper.metrics import NEVER_NEGATIVE

Array = NDArray[np.float64]
Scores = Mapping[str, Array]

LEVEL = 0.95
LOWER, HIGHER, UNDECIDED, NOT_COUNTED = "lower", "higher", "undecided", "not counted"


class Interval(NamedTuple):
    """Bounds that hold the value with 95 % confidence (or another level)."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference of this interval has a sign."""
        return self.low > 0 or self.high < 0


def iqm(values: Array) -> Array:
    r"""Interquartile mean along the last axis: ``⌊n/4⌋`` values are cut from each end."""
    ordered = np.sort(values, axis=-1)
    n = ordered.shape[-1]
    return np.asarray(ordered[..., n // 4 : n - n // 4].mean(axis=-1))


def squared_error(values: Array) -> float:
    """The squared standard error of a mean."""
    return float(np.var(values, ddof=1)) / len(values)


def student_interval(value: float, variance: float, freedom: float, level: float) -> Interval:
    """``value ± t · √variance``."""
    half = float(import_scipy("special").stdtrit(freedom, (1 + level) / 2)) * variance**0.5
    return Interval(value - half, value + half)


def import_scipy(part: str) -> ModuleType:
    """A part of scipy, which only the report needs."""
    try:
        return importlib.import_module(f"scipy.{part}")
    except ImportError as error:
        raise MissingExtraError('intervals need scipy: pip install "damper-rl[report]".') from error


def relative_change(
    ours: Scores,
    plain: Scores,
    centre: Callable[[Array], Any] = iqm,
    level: float = LEVEL,
    never_negative: bool = False,
) -> tuple[float, Interval | None]:
    r"""IQM (or mean) over tasks and seeds of the change relative to plain, ``(x − x̄₀)/|x̄₀|``.

    The interval is Student's with the variance that leaving out one seed at a time shows, of either
    side, and as many degrees of freedom as the smallest cell has; None where a cell has one seed
    only. Of a mean of zero, or of no seed, there is no change: NaN. What can never be negative, as
    a distance between actions, loses 100 % at most; a return can lose more.
    """
    strata = [*ours.values(), *(plain[task] for task in ours)]

    def statistic(strata: Sequence[Array]) -> float:
        pairs = zip(strata[: len(ours)], strata[len(ours) :], strict=True)
        changes = [(values - base.mean()) / abs(base.mean()) for values, base in pairs]
        return float(centre(np.concatenate(changes)))

    def without(k: int, i: int) -> float:
        return statistic([*strata[:k], np.delete(strata[k], i), *strata[k + 1 :]])

    smallest = min(map(len, strata))
    if not smallest or any(base.mean() == 0 for base in strata[len(ours) :]):
        return float("nan"), None
    value = statistic(strata)
    if smallest < 2:
        return value, None
    variance = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):  # without one seed, plain's mean may be 0
        for k, n in enumerate(map(len, strata)):
            variance += (n - 1) * float(np.var([without(k, i) for i in range(n)]))
    if not np.isfinite(variance):
        return value, None
    low, high = student_interval(value, variance, smallest - 1, level)
    return value, Interval(max(low, -1.0) if never_negative else low, high)


def ratio_change(ours: Array, plain: Array, level: float = LEVEL) -> tuple[float, Interval | None]:
    r"""The change of a mean relative to plain's, ``x̄/x̄₀ − 1``, of what is never negative.

    The interval is Student's of the ratio's logarithm (delta method), with the degrees of freedom
    of the smaller cell; None where a cell has one seed only, or where a mean is zero and has no
    logarithm.
    """
    smallest = min(len(ours), len(plain))
    if not smallest:
        return float("nan"), None
    mean, base = float(np.mean(ours)), float(np.mean(plain))
    value = mean / base - 1 if base else float("nan")
    if smallest < 2 or not mean or not base:
        return value, None
    variance = squared_error(ours) / mean**2 + squared_error(plain) / base**2
    low, high = np.expm1(student_interval(float(np.log1p(value)), variance, smallest - 1, level))
    return value, Interval(float(low), float(high))


class Change(NamedTuple):
    """A change as a share of plain's mean, or ``notes`` where a constant action makes it void."""

    value: float
    interval: Interval | None
    notes: str = ""

    @property
    def sign(self) -> str:
        """As far as the interval tells."""
        if self.notes:
            return NOT_COUNTED
        low, high = self.interval or (-np.inf, np.inf)
        return LOWER if high < 0 else HIGHER if low > 0 else UNDECIDED

    def __str__(self) -> str:
        """In per cent, with its interval."""
        interval = f" {bracketed(*self.interval)}" if self.interval else ""
        return self.notes or signed(self.value) + interval


def change_of_mean(plain: Array, ours: Array, measure: str) -> Change:
    """The change of a measure's mean over seeds, by the interval that suits the measure."""
    if measure in NEVER_NEGATIVE:
        return Change(*ratio_change(ours, plain))
    return Change(*relative_change({"": ours}, {"": plain}, np.mean))


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent."""
    return f"{100 * share:z.{digits}f} %".replace("-", "−")


def signed(share: float) -> str:
    """A change in per cent; a small one to a tenth."""
    if isnan(share):
        return "–"
    digits = 1 if abs(share) < 0.095 else 0
    return ("+" if round(share, 2 + digits) > 0 else "") + percent(share, digits)


def bracketed(low: float, high: float) -> str:
    """The bounds of a change in per cent, in brackets."""
    return "[{}, {}]".format(*(signed(end).removesuffix(" %") for end in (low, high)))
