r"""Statistics with seeds as the unit: means, spreads, intervals, probability of improvement.

A cell's scores are a table ``[S, E]``: a row per training seed, a column per evaluation episode.
Intervals are over seeds: ten episodes of one policy are not ten experiments. Each is the one that
covered best with five and ten seeds in a simulation (``docs/statistics.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from damper.intervals import (
    LEVEL,
    Array,
    Interval,
    Scores,
    import_scipy,
    squared_error,
    student_interval,
)


class Summary(NamedTuple):
    """What a table prints of a cell; None where there are too few values."""

    mean: float
    over_seeds: float | None
    pooled: float | None
    median: float
    interval: Interval | None
    values: tuple[float, ...]

    @property
    def seeds(self) -> int:
        """How many seeds have the value."""
        return len(self.values)


def summarise(scores: ArrayLike) -> Summary:
    r"""Mean, both spreads (the paper's caption says seeds, its numbers look pooled), interval."""
    table = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    means = table.mean(axis=1)
    return Summary(
        mean=float(means.mean()),
        over_seeds=float(means.std(ddof=1)) if len(means) > 1 else None,
        pooled=float(table.std(ddof=1)) if table.size > 1 else None,
        median=float(np.median(means)),
        interval=mean_interval(means),
        values=tuple(float(value) for value in means),
    )


def median(values: Array) -> float:
    """The median; NaN without values."""
    return float(np.median(values)) if len(values) else float("nan")


# --- intervals ------------------------------------------------------------------------------------


def mean_interval(values: Array, level: float = LEVEL) -> Interval | None:
    """Student's interval of a mean; None for one seed."""
    n = len(values)
    if n < 2:
        return None
    return student_interval(float(np.mean(values)), squared_error(values), n - 1, level)


def difference(ours: Array, theirs: Array, level: float = LEVEL) -> tuple[float, Interval | None]:
    """Our mean less theirs, with Welch's interval where both have several seeds."""
    gap = float(np.mean(ours) - np.mean(theirs))
    if min(len(ours), len(theirs)) < 2:
        return gap, None
    errors = [(squared_error(side), len(side) - 1) for side in (ours, theirs)]
    return gap, welch_interval(gap, errors, level)


def welch_interval(
    value: float, errors: Sequence[tuple[float, float]], level: float = LEVEL
) -> Interval:
    """Of a value with several independent errors."""
    variance = sum(part for part, _ in errors)
    spread = sum(part**2 / freedom for part, freedom in errors)
    return student_interval(value, variance, variance**2 / spread if spread else 1.0, level)


def superiority(ours: Array, theirs: Array) -> float:
    r"""``P(x > y) + ½ P(x = y)`` for a seed x of ours and y of theirs."""
    x, y = ours[:, None], theirs[None, :]
    return float(((x > y) + 0.5 * (x == y)).mean())


def probability_of_improvement(
    ours: Scores, theirs: Scores, level: float = LEVEL
) -> tuple[float, Interval] | None:
    r"""Mean over tasks of ``P(x > y) + ½ P(x = y)``, with its score interval.

    Larger is better. None where a task has one seed only. The interval holds the p whose distance
    from the value is at most z of *its own* standard errors (Newcombe 2006, method 5).
    """
    sizes = [(len(ours[task]), len(theirs[task])) for task in ours]
    if min(map(min, sizes)) < 2:
        return None
    value = float(np.mean([superiority(ours[task], theirs[task]) for task in ours]))
    z = float(import_scipy("special").ndtri((1 + level) / 2))

    def outside(p: float) -> float:
        shape = (1 - p) / (2 - p) + p / (1 + p)
        parts = (p * (1 - p) * (1 + ((n + m) / 2 - 1) * shape) / (n * m) for n, m in sizes)
        return float((value - p) ** 2 - z**2 * sum(parts) / len(sizes) ** 2)

    root = import_scipy("optimize").brentq
    near = 1e-9  # at the value itself is no root but where it is 0 or 1
    low = root(outside, 0.0, value - near) if value > near else 0.0
    high = root(outside, value + near, 1.0) if value < 1 - near else 1.0
    return value, Interval(float(low), float(high))


def initial_state_error(scores: Array) -> float | None:
    """Standard error that the choice of starts, the columns of ``[S, E]``, alone gives a mean.

    Intervals leave it out, since all policies see the same starts; other people's numbers do not.
    """
    if not len(scores):
        return None
    starts = scores.mean(axis=0)
    return float(starts.std(ddof=1) / len(starts) ** 0.5) if len(starts) > 1 else None


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices, by return, of the points (return, smoothness) that no other beats."""
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


def nan_for_none(values: Sequence[Any]) -> Array:
    """Recorded values as floats, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
