"""How often intervals hold the true value: five or ten seeds drawn from worlds in which it is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy import stats

from damper.report.statistics.estimates import (
    Array,
    difference,
    iqm,
    mean_interval,
    probability_of_improvement,
    relative_change,
)

Draw = Callable[[Generator, int], Array]
Bounds = tuple[float, float]


def normal(random: Generator, n: int) -> Array:
    return random.normal(10, 2, n)


def skewed(random: Generator, n: int) -> Array:
    return 8 + 2 * random.lognormal(0, 0.8, n)


def failing(random: Generator, n: int) -> Array:
    """One seed in five does not learn the task."""
    return np.where(random.random(n) < 0.2, random.normal(0, 2, n), random.normal(10, 2, n))


WORLDS: dict[str, Draw] = {"normal": normal, "skewed": skewed, "one seed in five fails": failing}
SEEDS = (5, 10)
MANY = 1_000_000


class Method(NamedTuple):
    """An interval under test: how many pairs of cells it takes, its bounds, and the value that it should hold.

    Ours is the world moved by ``shift``; a difference is tested where only the other side is skewed or fails.
    """

    tasks: int
    shift: float
    bounds: Callable[[list[Array], list[Array]], Bounds]
    truth: Callable[[Array, Array], float]
    ours: Draw | None = None


def _mean(ours: list[Array], theirs: list[Array]) -> Bounds:
    interval = mean_interval(theirs[0])
    assert interval is not None
    return interval


def _difference(ours: list[Array], theirs: list[Array]) -> Bounds:
    interval = difference(ours[0], theirs[0])[1]
    assert interval is not None
    return interval


def _change(ours: list[Array], theirs: list[Array], centre: Callable[[Array], object]) -> Bounds:
    interval = relative_change(dict(enumerate(ours)), dict(enumerate(theirs)), centre)[1]  # type: ignore[arg-type]
    assert interval is not None
    return interval


def _improvement(ours: list[Array], theirs: list[Array]) -> Bounds:
    found = probability_of_improvement(dict(enumerate(ours)), dict(enumerate(theirs)))  # type: ignore[arg-type]
    assert found is not None
    return found[1]


def _percentiles(ours: list[Array], theirs: list[Array], statistic: Callable[..., Array]) -> Bounds:
    """What is not used: percentiles of a bootstrap."""
    sides = (theirs[0],) if statistic is np.mean else (ours[0], theirs[0])
    found = stats.bootstrap(sides, statistic, method="percentile", n_resamples=999, vectorized=True, rng=0)
    return found.confidence_interval.low, found.confidence_interval.high


def _padding(x: Array, y: Array, axis: int = -1) -> Array:
    return np.asarray(x.mean(axis) - y.mean(axis))


def _relative(x: Array, y: Array, axis: int = -1) -> Array:
    base = y.mean(axis, keepdims=True)
    return np.asarray(((x - base) / np.abs(base)).mean(axis))


def _true_change(centre: Callable[[Array], object], x: Array, y: Array) -> float:
    return float(centre((x - y.mean()) / abs(y.mean())))  # type: ignore[arg-type]


def _wins(x: Array, y: Array) -> float:
    return float((x > y).mean())


METHODS: dict[str, Method] = {
    "mean: Student's t": Method(1, 0, _mean, lambda x, y: float(y.mean())),
    "mean: percentile bootstrap": Method(1, 0, partial(_percentiles, statistic=np.mean), lambda x, y: float(y.mean())),
    "difference: Welch's t": Method(1, 0, _difference, lambda x, y: float(x.mean() - y.mean()), normal),
    "difference: percentile bootstrap": Method(
        1, 0, partial(_percentiles, statistic=_padding), lambda x, y: float(x.mean() - y.mean()), normal
    ),
    "change of the mean: jackknife": Method(1, -4, partial(_change, centre=np.mean), partial(_true_change, np.mean)),
    "change of the mean: percentile bootstrap": Method(
        1, -4, partial(_percentiles, statistic=_relative), partial(_true_change, np.mean)
    ),
    "change, IQM, one task: jackknife": Method(1, -4, partial(_change, centre=iqm), partial(_true_change, iqm)),
    "change, IQM, six tasks: jackknife": Method(6, -4, partial(_change, centre=iqm), partial(_true_change, iqm)),
    "P(better), one task: score": Method(1, 2, _improvement, _wins),
    "P(better), six tasks: score": Method(6, 2, _improvement, _wins),
}


def coverage(method: Method, draw: Draw, n: int, trials: int) -> float:
    """The share of trials in which the interval holds the true value."""
    random = np.random.default_rng(n)
    ours = method.ours or draw
    truth = method.truth(method.shift + ours(random, MANY), draw(random, MANY))
    hits = 0
    for _ in range(trials):
        low, high = method.bounds(
            [method.shift + ours(random, n) for _ in range(method.tasks)],
            [draw(random, n) for _ in range(method.tasks)],
        )
        hits += low <= truth <= high
    return hits / trials


def table_row(name: str, trials: int) -> list[str]:
    """A row of the documentation's table, in per cent."""
    shares = [coverage(METHODS[name], draw, n, trials) for n in SEEDS for draw in WORLDS.values()]
    return [name, *(f"{100 * share:.0f}" for share in shares)]
