"""How often intervals hold the true value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import special, stats

from damper.intervals import Array, iqm, percent, relative_change
from damper.metrics import CONSTANT_CHANGE
from paper.claims.comparisons import CLOSE_MARGIN, claim_level
from paper.statistics.estimates import difference, mean_interval, probability_of_improvement

Draw = Callable[[Generator, int], Array]
Bounds = tuple[float, float]
Table = NDArray[np.float64]  # [trials, n]


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
TRIALS = 40_000


class Method(NamedTuple):
    """An interval under test.

    How many pairs of cells it takes, its bounds, and the value that it should hold.

    Ours is the world moved by ``shift``; a difference is tested where only the other side is skewed
    or fails.
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
    found = stats.bootstrap(
        sides, statistic, method="percentile", n_resamples=999, vectorized=True, rng=0
    )
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
    "mean: percentile bootstrap": Method(
        1, 0, partial(_percentiles, statistic=np.mean), lambda x, y: float(y.mean())
    ),
    "difference: Welch's t": Method(
        1, 0, _difference, lambda x, y: float(x.mean() - y.mean()), normal
    ),
    "difference: percentile bootstrap": Method(
        1,
        0,
        partial(_percentiles, statistic=_padding),
        lambda x, y: float(x.mean() - y.mean()),
        normal,
    ),
    "change of the mean: jackknife": Method(
        1, -4, partial(_change, centre=np.mean), partial(_true_change, np.mean)
    ),
    "change of the mean: percentile bootstrap": Method(
        1, -4, partial(_percentiles, statistic=_relative), partial(_true_change, np.mean)
    ),
    "change, IQM, one task: jackknife": Method(
        1, -4, partial(_change, centre=iqm), partial(_true_change, iqm)
    ),
    "change, IQM, six tasks: jackknife": Method(
        6, -4, partial(_change, centre=iqm), partial(_true_change, iqm)
    ),
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


# --- changes of what is never negative ------------------------------------------------------------

Pair = Callable[[Generator, tuple[int, int]], tuple[Table, Table]]


def chattering(random: Generator, size: tuple[int, int], share: float) -> Table:
    """Mean |Δa| of a method of which some seeds chatter, as plain TD3's do on Pendulum."""
    calm = 0.035 * random.lognormal(0, 0.25, size)
    return np.where(random.random(size) < share, random.normal(0.5, 0.05, size), calm)


def _same(draw: Draw) -> Pair:
    return lambda random, size: (draw(random, size) - 4, draw(random, size))  # type: ignore[arg-type]


def _plain_chatters(share: float) -> Pair:
    return lambda random, size: (
        0.01 * random.lognormal(0, 0.2, size),
        chattering(random, size, share),
    )


def _some_constant(share: float) -> Pair:
    """A tenth smoother than plain, but for agents that hold one action."""

    def draw(random: Generator, size: tuple[int, int]) -> tuple[Table, Table]:
        moving, plain = (0.004 * random.lognormal(0, 0.1, size) for _ in range(2))
        return np.where(random.random(size) < share, 1e-6, 0.9 * moving), plain

    return draw


def _both_chatter(share: float) -> Pair:
    return lambda random, size: (
        0.2 * chattering(random, size, share),
        chattering(random, size, share),
    )


SHARES = (0.2, 0.4, 0.6, 0.8)
CHANGE_WORLDS: dict[str, Pair] = {
    "normal": _same(normal),
    "skewed": _same(skewed),
    **{f"{percent(share)} of plain's seeds chatter": _plain_chatters(share) for share in SHARES},
    **{
        f"{percent(share)} of the seeds of either side chatter": _both_chatter(share)
        for share in SHARES
    },
    "one constant agent in five, DAMPER's": _some_constant(0.2),
}


def log_ratio_bounds(ours: Table, theirs: Table) -> tuple[Array, Array]:
    """``ratio_change``'s interval of every row."""
    n = ours.shape[1]
    variance = sum(side.var(1, ddof=1) / n / side.mean(1) ** 2 for side in (ours, theirs))
    half, value = (
        special.stdtrit(n - 1, 0.975) * variance**0.5,
        np.log(ours.mean(1) / theirs.mean(1)),
    )
    return np.expm1(value - half), np.expm1(value + half)


def jackknife_bounds(ours: Table, theirs: Table) -> tuple[Array, Array]:
    """``relative_change``'s interval of the mean of every row, of what is never negative."""
    n = ours.shape[1]
    x, y = (side.mean(1, keepdims=True) for side in (ours, theirs))
    without_x, without_y = (
        (side.sum(1, keepdims=True) - side) / (n - 1) for side in (ours, theirs)
    )
    variance = (n - 1) * ((without_x / y).var(1) + (x / without_y).var(1))
    half, value = special.stdtrit(n - 1, 0.975) * variance**0.5, (x / y)[:, 0] - 1
    return np.maximum(value - half, -1), value + half


def change_coverage(world: str) -> list[int]:
    """A row of the documentation's table, in per cent.

    Jackknife and log ratio, of five and of ten seeds.
    """
    draw, shares = CHANGE_WORLDS[world], []
    many = draw(np.random.default_rng(0), (1, MANY))
    truth = many[0].mean() / many[1].mean() - 1
    for n in SEEDS:
        ours, theirs = draw(np.random.default_rng(n), (TRIALS, n))
        counted = (
            2 * (ours < CONSTANT_CHANGE).sum(1) <= n
        )  # most agents constant: no change is printed
        cells = ours[counted], theirs[counted]
        for low, high in (jackknife_bounds(*cells), log_ratio_bounds(*cells)):
            shares.append(round(100 * float(((low <= truth) & (truth <= high)).mean())))
    return shares


# --- at the claims' level -------------------------------------------------------------------------

Holds = NDArray[np.bool_]
MEANS = {normal: 10.0, skewed: 8 + 2 * np.exp(0.32), failing: 8.0}


def student_bounds(values: Table, level: float) -> tuple[Array, Array]:
    """``mean_interval`` of every row."""
    n = values.shape[1]
    half = special.stdtrit(n - 1, (1 + level) / 2) * values.std(1, ddof=1) / n**0.5
    return values.mean(1) - half, values.mean(1) + half


def welch_bounds(ours: Table, theirs: Table, level: float) -> tuple[Array, Array]:
    """``difference``'s interval of every row."""
    n = ours.shape[1]
    gap = ours.mean(1) - theirs.mean(1)
    a, b = ours.var(1, ddof=1) / n, theirs.var(1, ddof=1) / n
    half = special.stdtrit((n - 1) * (a + b) ** 2 / (a**2 + b**2), (1 + level) / 2) * (a + b) ** 0.5
    return gap - half, gap + half


def centred(draw: Draw, random: Generator, n: int) -> Table:
    """Seeds of a world about its own mean."""
    return draw(random, (TRIALS, n)) - MEANS[draw]  # type: ignore[arg-type]


def _one_sided(low: Array, high: Array) -> list[Holds]:
    """Where a claim of a lower and one of a higher mean hold; both are false."""
    return [high < 0, low > 0]


def _against_a_number(random: Generator, draw: Draw, n: int, level: float) -> list[Holds]:
    return _one_sided(*student_bounds(centred(draw, random, n), level))


def _beside_normal(random: Generator, draw: Draw, n: int, level: float) -> list[Holds]:
    return _one_sided(*welch_bounds(centred(normal, random, n), centred(draw, random, n), level))


def _beside_constant(random: Generator, draw: Draw, n: int, level: float) -> list[Holds]:
    return _one_sided(
        *welch_bounds(centred(normal, random, n) / 100, centred(draw, random, n), level)
    )


def _beside_its_own(random: Generator, draw: Draw, n: int, level: float) -> list[Holds]:
    return _one_sided(*welch_bounds(centred(draw, random, n), centred(draw, random, n), level))


def _close(random: Generator, draw: Draw, n: int, level: float) -> list[Holds]:
    """Exactly 5 % apart, with a fortieth of the world's spread: where closeness is seen at all."""
    ours, theirs = (MEANS[draw] + centred(draw, random, n) / 40 for _ in range(2))
    margin, held = CLOSE_MARGIN * np.abs(theirs.mean(1)), []
    for shift in (-CLOSE_MARGIN, CLOSE_MARGIN):
        low, high = welch_bounds(ours + shift * MEANS[draw], theirs, level)
        held.append((-margin <= low) & (high <= margin))
    return held


def _spread(random: Generator, draw: Draw, n: int, level: float) -> list[Holds]:
    ours, theirs = (centred(draw, random, n) for _ in range(2))
    distances = (np.abs(side - np.median(side, axis=1, keepdims=True)) for side in (ours, theirs))
    return _one_sided(*welch_bounds(*distances, level))


FALSE_CLAIMS: dict[str, Callable[[Generator, Draw, int, float], list[Holds]]] = {
    "two means, both of this kind": _beside_its_own,
    "two means, the other normal": _beside_normal,
    "two means, the other nearly constant": _beside_constant,
    "a mean against a number": _against_a_number,
    "close: two means 5 % apart": _close,
    "spread, both of this kind": _spread,
}


TRUE_EFFECTS = {
    "one standard deviation": 1.0,
    "two standard deviations": 2.0,
    "three standard deviations": 3.0,
}


def true_holds(name: str) -> list[float]:
    """A row of the documentation's table.

    How often a true difference is said to hold, in per cent.
    """
    found = []
    for n, level in ((5, claim_level()), (10, claim_level()), (5, 0.95)):
        random = np.random.default_rng(n)
        ours, theirs = (centred(normal, random, n) / 2 for _ in range(2))
        _, high = welch_bounds(ours - TRUE_EFFECTS[name], theirs, level)
        found.append(100 * float((high < 0).mean()))
    return found


def widths() -> tuple[float, float]:
    """The claims' intervals over those at 95 %, of five seeds: the narrowest and the widest."""
    factors = [
        special.stdtrit(np.array([8, 4]), (1 + level) / 2) for level in (claim_level(), 0.95)
    ]
    narrow, wide = factors[0] / factors[1]
    return float(narrow), float(wide)


def false_holds(name: str) -> list[float]:
    """A row of the documentation's table.

    How often what is just false is said to hold, in per cent, at the worst.
    """
    level, claim = claim_level(), FALSE_CLAIMS[name]
    rows = (
        claim(np.random.default_rng(n), draw, n, level) for n in SEEDS for draw in WORLDS.values()
    )
    return [100 * max(float(held.mean()) for held in row) for row in rows]
