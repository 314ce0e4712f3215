"""One comparison of a claim: two means, the gap with its interval, and a word for what it says.

A comparison *holds* if the gap has the claimed sign and its interval excludes zero; it *leans* if
the mean agrees (ties do) but the interval includes zero; it *leans against* if the mean disagrees
but the interval still allows the claim, and *fails* if it does not. Where the paper concedes
something (a lower return), a mean on the good side is *better than claimed*. The smoothness of a
policy that hardly ever changes its action, or the gradient that is left to smooth it, is no
comparison: *constant actions*. Fewer than five seeds are *not enough data*.

A claim is a conjunction, so its comparisons need no correction among themselves; over the claims
the intervals are Bonferroni's (``docs/statistics.md`` says what that is worth).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from damper.intervals import LEVEL, Array, Interval, percent
from damper.metrics import SMOOTHNESS
from paper.experiments.identity import published_settings
from paper.experiments.printed import paper, title
from paper.statistics.cells import LETTERS, MEASURES, Cell, Setup
from paper.statistics.estimates import difference, mean_interval, nan_for_none
from paper.statistics.numbers import four_digits, with_bounds

HOLDS, LEANS, LEANS_AGAINST, FAILS = "holds", "leans", "leans against", "fails"
BETTER, CONSTANT = "better than claimed", "constant actions"
OPEN, NOT_JUDGED = "not enough data", "not judged"
VERDICTS = (HOLDS, BETTER, LEANS, LEANS_AGAINST, CONSTANT, FAILS, OPEN, NOT_JUDGED)
_BAD_TO_GOOD = (FAILS, CONSTANT, LEANS_AGAINST, LEANS, BETTER, HOLDS)  # of what is known
MIN_SEEDS = 5
# A size that the paper prints (92 % smoother, a return that collapses to 10 %) counts as reached at
# nine tenths of it.
REACHED_SHARE = 0.9
CLOSE_MARGIN = 0.05
ANY = Interval(-np.inf, np.inf)


class Check(NamedTuple):
    """One comparison: what it says with its numbers, and the verdict."""

    text: str
    verdict: str


class Side(NamedTuple):
    """What is compared: a name, one value per seed (None: too few), what forbids comparing."""

    name: str
    values: Array | None
    constant: str = ""

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.values)) if self.values is not None else float("nan")

    @property
    def spread(self) -> Side:
        """Its variability: each seed's distance from the median (Brown and Forsythe)."""
        if self.values is None:
            return Side(self.name, None)
        return Side(self.name, np.abs(self.values - np.median(self.values)))


@dataclass(frozen=True)
class Evidence:
    """The setup in which a claim is looked up, and the η of DAMPER if it is not the paper's."""

    setup: Setup
    eta: float | None = None

    def cell(self, backbone: str, task: str, method: str, **changed: float) -> Cell | None:
        """The cell at the published settings, or with some of them changed."""
        if self.eta is not None and "eta" in published_settings(method, task, backbone):
            changed = {"eta": self.eta, **changed}
        return self.setup.find(backbone, task, method, **changed)

    def side(self, backbone: str, task: str, method: str, measure: str, **changed: float) -> Side:
        """A cell's seeds, counted by the measure that is compared."""
        cell = self.cell(backbone, task, method, **changed)
        values = cell.means(measure) if cell else np.array([])
        changes = [f" {LETTERS.get(name, name)}={value:g}" for name, value in changed.items()]
        name = title(method, backbone) + "".join(changes)
        return _side(name, values, cell if measure in SMOOTHNESS else None)

    def gradients(self, backbone: str, task: str, name: str, method: str = "damper") -> Side:
        """A recorded quantity's median over a method's own training, per seed."""
        cell = self.cell(backbone, task, method)
        curves = [record.curve for record in cell.records] if cell else []
        columns = [nan_for_none(curve[name]) for curve in curves if name in curve]
        medians = [np.nanmedian(column) for column in columns if np.isfinite(column).any()]
        return _side(title(method, backbone), np.array(medians), cell)


def _side(name: str, values: Array, cell: Cell | None) -> Side:
    constant = cell.constant_note if cell and cell.mostly_constant else ""
    return Side(name, values if len(values) >= MIN_SEEDS else None, constant)


def subject_of(backbone: str, task: str, measure: str) -> str:
    """Backbone, task and measure of a comparison, as its text begins."""
    return f"{backbone.upper()} {task} {MEASURES[measure]}"


def claim_level(candidates: int = 1) -> float:
    """Bonferroni's confidence of one interval, where the best of ``candidates`` is compared."""
    return 1 - (1 - LEVEL) / (len(paper()["claims"]) * candidates)


def conjunction(verdicts: Iterable[str]) -> str:
    """As good as the worst part; while some parts are unknown only a failure settles it."""
    distinct = set(verdicts) or {OPEN}
    return next(word for word in (FAILS, OPEN, *_BAD_TO_GOOD) if word in distinct)


def judge(gap: float, interval: Interval, concession: bool = False) -> str:
    """Verdict on a gap that should not be above zero."""
    if gap <= 0:
        return HOLDS if interval.high < 0 else LEANS
    return BETTER if concession else FAILS if interval.low > 0 else LEANS_AGAINST


# --- comparisons ----------------------------------------------------------------------------------


def compare_means(
    subject: str,
    ours: Side,
    theirs: Side,
    expect: str = "lower",
    by: float = 0.0,
    words: str = "",
    concession: bool = False,
    candidates: int = 1,
) -> Check:
    """Our mean is lower (higher) than theirs less a share ``by`` of its size.

    ``words`` say what that bound stands for, a ``concession`` makes the opposite better than
    claimed, and ``candidates`` is of how many the better side was picked.
    """
    if ours.values is None or theirs.values is None:
        return _open(f"{subject}: {ours.name} {expect} than {theirs.name}{_note(words)}")
    bound = theirs.values * (1 - by * np.sign(theirs.mean))
    gap, interval = difference(ours.values, bound, claim_level(candidates))
    assert interval is not None
    sign = 1 if expect == "lower" else -1
    turned = interval if sign > 0 else Interval(-interval.high, -interval.low)
    verdict = judge(sign * gap, turned, concession)
    to_bound = f"gap to {four_digits(float(np.mean(bound)))}:" if by else "gap"
    text = f"{_means(subject, ours, theirs, words)} {to_bound} {with_bounds(gap, interval)}"
    constant = [f"{side.name}: {side.constant}" for side in (ours, theirs) if side.constant]
    if constant:
        return Check(f"{text}; {', '.join(constant)}", CONSTANT)
    noise = ", within the noise" if verdict == BETTER and turned.low <= 0 else ""
    return Check(text + noise, verdict)


def close(subject: str, ours: Side, theirs: Side) -> Check:
    """Our mean is within 5 % of theirs: holds if all of the interval is, leans if the mean is."""
    words = f"close: within {percent(CLOSE_MARGIN)}"
    if ours.values is None or theirs.values is None:
        return _open(f"{subject}: {ours.name} close to {theirs.name}{_note(words)}")
    gap, interval = difference(ours.values, theirs.values, claim_level())
    assert interval is not None
    margin = CLOSE_MARGIN * abs(theirs.mean)
    if abs(gap) <= margin:
        verdict = HOLDS if -margin <= interval.low and interval.high <= margin else LEANS
    else:
        verdict = FAILS if interval.low > margin or interval.high < -margin else LEANS_AGAINST
    text = f"{_means(subject, ours, theirs, words)} gap {with_bounds(gap, interval)}"
    return Check(text, verdict)


def against(
    subject: str, ours: Side, bound: float, expect: str, words: str, possible: Interval = ANY
) -> Check:
    """Our mean is lower (higher) than a fixed number; bounds stay within what is possible."""
    if ours.values is None:
        return _open(f"{subject}, {words}")
    interval = mean_interval(ours.values, claim_level())
    assert interval is not None
    sign = 1 if expect == "lower" else -1
    ends = sorted(sign * (end - bound) for end in interval)
    verdict = judge(sign * (ours.mean - bound), Interval(*ends))
    shown = Interval(max(interval.low, possible.low), min(interval.high, possible.high))
    text = f"{subject} {with_bounds(ours.mean, shown)}, {words}"
    return Check(f"{text}; {ours.constant}", CONSTANT) if ours.constant else Check(text, verdict)


def extreme(
    subject: str, ours: Side, rivals: Sequence[Side], expect: str = "lower", **how: Any
) -> Check:
    """Our mean is lower (higher) than every rival's; the least favourable comparison speaks."""
    checks = [compare_means(subject, ours, rival, expect, **how) for rival in rivals]
    pairs = zip(checks, rivals, strict=True)
    measured = [(check, rival.mean) for check, rival in pairs if check.verdict != OPEN]
    if not measured:
        there = sum(side.values is not None for side in (ours, *rivals))
        few = len(rivals) < 7
        names = ", ".join(rival.name for rival in rivals) if few else f"{len(rivals)} others"
        words = f"{_note(how.get('words', ''))}: {there} of {len(rivals) + 1} measured"
        return Check(f"{subject}: {ours.name} {expect} than {names}{words}", OPEN)
    sign = 1 if expect == "lower" else -1
    worst, _ = min(measured, key=lambda pair: (_BAD_TO_GOOD.index(pair[0].verdict), sign * pair[1]))
    missing = len(rivals) - len(measured)
    rest = f"least favourable of {len(measured)}"
    rest += f", {missing} not yet measured" if missing else ""
    return Check(f"{worst.text} ({rest})", conjunction(check.verdict for check in checks))


def _open(text: str) -> Check:
    return Check(f"{text}: not yet measured", OPEN)


def _means(subject: str, ours: Side, theirs: Side, words: str) -> str:
    means = [f"{side.name} {four_digits(side.mean)}" for side in (ours, theirs)]
    return f"{subject}: {', '.join(means)}{_note(words)};"


def _note(words: str) -> str:
    return f" ({words})" if words else ""
