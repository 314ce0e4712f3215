r"""Statistics with seeds as the unit: means with both spreads, interquartile means, bootstrap intervals, improvement.

A cell's scores are a table ``[S, E]``: one row per training seed, one column per evaluation episode. Intervals resample
seeds, never episodes: ten episodes of one policy are not ten experiments. Every interval has its own random stream,
named by what it is of, so that adding a cell to a report moves no other number.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]

RESAMPLES = 5000
LEVEL = 0.95


class Interval(NamedTuple):
    """Bounds that hold the value with 95 % confidence, as far as so few seeds can tell."""

    low: float
    high: float


class Summary(NamedTuple):
    """What a table prints of a cell; spreads and interval are None where there are too few values."""

    mean: float
    over_seeds: float | None
    pooled: float | None
    iqm: float
    interval: Interval | None
    seeds: int
    episodes: int


def summarise(scores: ArrayLike, name: str = "") -> Summary:
    r"""Mean, sample deviation of the seeds' means, sample deviation of all episodes, IQM and interval of the mean.

    The paper's caption says "across seeds", its numbers look pooled over episodes: both are given.
    """
    table = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    means = table.mean(axis=1)
    return Summary(
        mean=float(means.mean()),
        over_seeds=float(means.std(ddof=1)) if len(means) > 1 else None,
        pooled=float(table.std(ddof=1)) if table.size > 1 else None,
        iqm=float(iqm(means)),
        interval=bootstrap({"": means}, average, name) if len(means) > 1 else None,
        seeds=len(means),
        episodes=table.shape[1],
    )


def iqm(values: Array, axis: int = -1) -> Array:
    r"""Interquartile mean: the mean of what is left when ``⌊n/4⌋`` values are cut from each end."""
    ordered = np.sort(values, axis=axis)
    n = ordered.shape[axis]
    kept = np.take(ordered, np.arange(n // 4, n - n // 4), axis=axis)
    return np.asarray(kept.mean(axis=axis))


def average(values: Array, axis: int = -1) -> Array:
    """The mean, as a statistic for ``bootstrap``."""
    return np.asarray(values.mean(axis=axis))


def bootstrap(
    strata: Mapping[str, Array], statistic: Statistic, name: str = "", resamples: int = RESAMPLES
) -> Interval:
    r"""Percentile interval of a statistic of all strata's values together.

    Each stratum (task) keeps its number of seeds in every resample: seeds are drawn with replacement inside it.

    Args:
        strata: stratum -> one value per seed.
        statistic: maps values ``[B, n]`` to ``[B]``.
        name: what the interval is of; chooses the random stream.
        resamples: how many.
    """
    random = np.random.default_rng(zlib.crc32(name.encode()))
    draws = [resample(values, random, resamples) for values in strata.values()]
    return percentiles(statistic(np.concatenate(draws, axis=1)))


def resample(values: Array, random: np.random.Generator, resamples: int) -> Array:
    """``[B, n]``: n of the n values with replacement, B times."""
    return np.asarray(values, dtype=np.float64)[random.integers(len(values), size=(resamples, len(values)))]


def percentiles(draws: Array) -> Interval:
    """The middle 95 %."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def difference(ours: Array, theirs: Array, name: str = "", resamples: int = RESAMPLES) -> tuple[float, Interval | None]:
    """Our mean less theirs, with its interval where both have several seeds."""
    value = float(np.mean(ours) - np.mean(theirs))
    if min(len(ours), len(theirs)) < 2:
        return value, None
    random = np.random.default_rng(zlib.crc32(name.encode()))
    draws = resample(ours, random, resamples).mean(axis=1) - resample(theirs, random, resamples).mean(axis=1)
    return value, percentiles(draws)


def superiority(ours: Array, theirs: Array) -> Array:
    r"""``P(x > y) + ½ P(x = y)`` for a seed x of ours and y of theirs: ``[..., n], [..., m] -> [...]``."""
    x, y = ours[..., :, None], theirs[..., None, :]
    return np.asarray(((x > y) + 0.5 * (x == y)).mean(axis=(-2, -1)))


def probability_of_improvement(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str = "", resamples: int = RESAMPLES
) -> tuple[float, Interval]:
    r"""Mean over tasks of ``P(x > y) + ½ P(x = y)``, with its stratified bootstrap interval.

    Larger is better: negate a score of which less is better. Both must have the same tasks.
    """
    random = np.random.default_rng(zlib.crc32(name.encode()))
    value = float(np.mean([superiority(ours[task], theirs[task]) for task in ours]))
    draws = [
        superiority(resample(ours[task], random, resamples), resample(theirs[task], random, resamples)) for task in ours
    ]
    return value, percentiles(np.mean(draws, axis=0))


def relative_iqm(
    ours: Mapping[str, Array], plain: Mapping[str, Array], name: str = "", resamples: int = RESAMPLES
) -> tuple[float, Interval]:
    r"""IQM over tasks and seeds of the change relative to the plain method: ``(x − x̄₀)/|x̄₀|``, x̄₀ its task's mean."""
    changes = {task: (ours[task] - plain[task].mean()) / abs(plain[task].mean()) for task in ours}
    value = float(iqm(np.concatenate(list(changes.values()))))
    return value, bootstrap(changes, iqm, name, resamples)


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (return, smoothness) that no other beats: higher return, lower smoothness; by return."""
    order = sorted(range(len(points)), key=lambda i: (-points[i][0], points[i][1]))
    front: list[int] = []
    for i in order:
        if not front or points[i][1] < points[front[-1]][1]:
            front.append(i)
    return front[::-1]


def normalised(values: Sequence[float]) -> list[float]:
    r"""``(x − m)/(M − m)`` over the values; zeros if they are all alike."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]


def known(values: Sequence[Any]) -> Array:
    """Numbers with NaN where one is unknown."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
