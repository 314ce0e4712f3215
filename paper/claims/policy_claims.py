"""The paper's claims about trained policies.

Where the paper uses a word ("large", "collapses", "slightly", "similar"), the number that stands
for it here is near the paper's own and in the comparison's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

from damper.intervals import Interval, percent
from damper.tasks import PAPER_TASKS
from damper.terminal import counted
from paper.claims.comparisons import (
    BETTER,
    CLOSE_MARGIN,
    CONSTANT,
    FAILS,
    HOLDS,
    LEANS,
    LEANS_AGAINST,
    OPEN,
    REACHED_SHARE,
    Check,
    Evidence,
    Side,
    against,
    close,
    compare_means,
    conjunction,
    extreme,
    subject_of,
)
from paper.experiments.catalogue import ABLATION_TASKS, BACKBONES, ETAS, RIVALS, WEIGHTS
from paper.experiments.printed import paper, printed, title

LOWEST_SM = {
    "td3": ("LunarLander", "Ant", "Hopper", "Walker"),
    "sac": ("LunarLander", "Reacher", "Ant", "Walker"),
}
# The fixed weights λ that the paper names, the methods they are said to beat in both measures, the
# methods that are said to be smoother than them, and the weights that are said to be smoother than
# every method at a lower return.
PAPER_WEIGHTS = {"Ant": 0.75, "LunarLander": 0.80, "Hopper": 0.80, "Pendulum": 0.85}
BEATEN_BY_WEIGHT = {
    "Ant": RIVALS,
    "LunarLander": ("grad-caps", "asap", "l2c2", "pave"),
    "Hopper": ("caps", "asap", "l2c2", "pave"),
    "Pendulum": ("asap", "l2c2"),
}
SMOOTHER_THAN_WEIGHT = {"LunarLander": ("caps",), "Pendulum": ("caps", "pave")}
SMOOTHEST_WEIGHT = {"Reacher": 0.95, "Walker": 0.95}
WEAK_RATIO, FREQUENT_CONFLICT = 1.0, 0.25
CHANCE_CONFLICT = 0.5  # of two unrelated directions
SHARE, RATIO = Interval(0.0, 1.0), Interval(0.0, float("inf"))  # what such numbers can be


Checks = Iterator[Check]
EVERYWHERE = tuple(product(BACKBONES, PAPER_TASKS))
SUM, PROJECTION = "unconditional-sum", "unconditional-projection"


# --- the main tables ------------------------------------------------------------------------------


def _pair(
    e: Evidence, backbone: str, task: str, measure: str, a: str, b: str, expect: str, **how: Any
) -> Check:
    ours, theirs = (e.side(backbone, task, method, measure) for method in (a, b))
    return compare_means(subject_of(backbone, task, measure), ours, theirs, expect, **how)


def _best(
    e: Evidence, backbone: str, task: str, measure: str, methods: Sequence[str], expect: str
) -> Check:
    """DAMPER before the other methods."""
    ours, *others = (e.side(backbone, task, method, measure) for method in ("damper", *methods))
    return extreme(subject_of(backbone, task, measure), ours, others, expect)


def _lower_everywhere(e: Evidence) -> Checks:
    for backbone, task in EVERYWHERE:
        yield _pair(e, backbone, task, "sm", "damper", "plain", "lower")


def _lowest(e: Evidence) -> Checks:
    for backbone, tasks in LOWEST_SM.items():
        for task in tasks:
            yield _best(e, backbone, task, "sm", ("plain", *RIVALS), "lower")


def _walker_changes(e: Evidence) -> Checks:
    for backbone in BACKBONES:
        yield _pair(e, backbone, "Walker", "mean_change", "damper", "plain", "lower")


def _lunar(e: Evidence) -> Checks:
    yield _pair(e, "td3", "LunarLander", "return", "damper", "plain", "higher")
    yield _pair(e, "td3", "LunarLander", "sm", "damper", "plain", "lower")


def _large_reduction(e: Evidence) -> Checks:
    for task in ("Hopper", "Walker"):
        yield _reduction(e, task, "sm", "damper", "plain", "large")
        yield _pair(e, "td3", task, "return", "damper", "plain", "lower", concession=True)


def _reduction(e: Evidence, task: str, measure: str, ours: str, theirs: str, word: str) -> Check:
    """TD3: our mean is below theirs by nine tenths of what the paper prints."""
    size = _printed_reduction(task, measure, ours, theirs)
    counts = REACHED_SHARE * size
    words = f"{word}: {percent(size)} lower in the paper, {percent(counts)} counts"
    return _pair(e, "td3", task, measure, ours, theirs, "lower", by=counts, words=words)


def _printed_reduction(task: str, measure: str, ours: str, theirs: str) -> float:
    x, y = (printed("td3", method, task, measure) for method in (ours, theirs))
    assert x is not None and y is not None
    return 1 - x.mean / y.mean


def _best_return(e: Evidence) -> Checks:
    for task in ("LunarLander", "Hopper"):
        yield _best(e, "sac", task, "return", ("plain", *RIVALS), "higher")


def _sac_tradeoff(e: Evidence) -> Checks:
    for task in ("Ant", "Walker"):
        yield _best(e, "sac", task, "sm", ("plain", *RIVALS), "lower")
        yield _pair(e, "sac", task, "return", "damper", "plain", "lower", concession=True)


def _gradient_regime(e: Evidence) -> Checks:
    """Along DAMPER's own training."""
    weak = f"weak: below {WEAK_RATIO:g}"
    frequent = f"frequent: above {FREQUENT_CONFLICT:g}; by chance {CHANCE_CONFLICT:g}"
    for backbone, task in EVERYWHERE:
        subject = f"{backbone.upper()} {task}"
        ratio = e.gradients(backbone, task, "norm_ratio")
        yield against(f"{subject} n_T/n_R", ratio, WEAK_RATIO, "lower", weak, RATIO)
        subject += " share of updates in conflict"
        conflict = e.gradients(backbone, task, "conflict")
        yield against(subject, conflict, FREQUENT_CONFLICT, "higher", frequent, SHARE)


def _about_gradients(e: Evidence) -> str:
    """What the words of the claim leave open."""
    return ". ".join(filter(None, (_conflict_by_chance(e), _plains_gradients(e))))


def _conflict_by_chance(e: Evidence) -> str:
    """The cells in conflict more often than unrelated directions would be."""
    more: list[str] = []
    others: list[str] = []
    for backbone, task in EVERYWHERE:
        conflict = e.gradients(backbone, task, "conflict")
        if conflict.values is not None and not conflict.constant:
            check = against("", conflict, CHANCE_CONFLICT, "higher", "")
            (more if check.verdict == HOLDS else others).append(f"{backbone.upper()} {task}")
    if not more and not others:
        return ""
    unsure = f"; this is not shown on {', '.join(others)}" if others else ""
    return (
        f"Unrelated directions would conflict in {CHANCE_CONFLICT:g} of the updates. More do, "
        f"beyond the noise, on {', '.join(more) or 'no task'}{unsure}"
    )


def _plains_gradients(e: Evidence) -> str:
    """Both gradients along plain's own training, where they are recorded: means of the pairs."""
    means: dict[str, tuple[float, float]] = {}
    for backbone, task in EVERYWHERE:
        conflict = e.gradients(backbone, task, "conflict", "plain")
        ratio = e.gradients(backbone, task, "norm_ratio", "plain")
        if all(side.values is not None and not side.constant for side in (conflict, ratio)):
            means[f"{backbone.upper()} {task}"] = conflict.mean, ratio.mean
    if not means:
        return ""
    shares, ratios = zip(*means.values(), strict=True)
    strong = [subject for subject, (_, ratio) in means.items() if ratio > WEAK_RATIO]
    return (
        f"In plain's own training ({counted(len(means), 'task–backbone pair')}), {_range(shares)} "
        f"of the updates conflict and n_T/n_R is {_range(ratios)}, above {WEAK_RATIO:g} on "
        f"{', '.join(strong) or 'none'}"
    )


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(values), max(values))))


# --- ablations ------------------------------------------------------------------------------------


def _ablation(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        yield _best(e, "td3", task, "return", (PROJECTION, SUM), "higher")


def _collapse(e: Evidence) -> Checks:
    yield _reduction(e, "Hopper", "return", SUM, "damper", "collapses")
    for other in ("damper", PROJECTION):
        yield _pair(e, "td3", "Hopper", "sm", SUM, other, "lower")


def _collapsed(e: Evidence) -> str:
    """How many agents collapse in return, whatever becomes of their smoothness."""
    ours, damper = (e.side("td3", "Hopper", method, "return") for method in (SUM, "damper"))
    if ours.values is None or damper.values is None:
        return ""
    left = 1 - REACHED_SHARE * _printed_reduction("Hopper", "return", SUM, "damper")
    count = int((ours.values < left * damper.mean).sum())
    return (
        f"Return alone: {count} of {len(ours.values)} agents earn less than {percent(left)} of "
        "DAMPER's mean return"
    )


def _sum_close(e: Evidence) -> Checks:
    sides = (e.side("td3", "LunarLander", method, "return") for method in (SUM, "damper"))
    yield close(subject_of("td3", "LunarLander", "return"), *sides)


def _projection(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        ours, damper = (e.side("td3", task, method, "return") for method in (PROJECTION, "damper"))
        subject = subject_of("td3", task, "return")
        if task == "Hopper":
            yield close(subject, ours, damper)
            continue
        yield compare_means(subject, ours, damper, "lower")
        subject += ", mean distance from the median"
        yield compare_means(subject, ours.spread, damper.spread, "higher")


def _pegrad(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        yield _reduction(e, task, "sm", "damper", "pegrad", "smoother")
    for task in ("LunarLander", "Hopper"):
        yield _pair(e, "td3", task, "return", "damper", "pegrad", "higher")
    walker = (e, "td3", "Walker", "return", "damper", "pegrad")
    yield _pair(*walker, "lower", concession=True)
    words = f"slightly: no more than {percent(CLOSE_MARGIN)} lower"
    yield _pair(*walker, "higher", by=CLOSE_MARGIN, words=words)


def _eta(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        sides = {eta: e.side("td3", task, "damper", "sm", eta=eta) for eta in ETAS}
        *smaller, last = sides.values()
        subject = subject_of("td3", task, "sm")
        if task == "Walker":
            bump = f"{subject}, a bump at η = 0.6"
            for eta in (0.4, 0.8):
                yield compare_means(bump, sides[0.6], sides[eta], "higher", concession=True)
        else:
            for former, later in pairwise(sides.values()):
                yield compare_means(subject, later, former, "lower")
        yield extreme(f"{subject}, lowest at η = 1", last, smaller, "lower")


# --- fixed weights --------------------------------------------------------------------------------


def _weight(e: Evidence, task: str, weight: float, measure: str) -> Side:
    return e.side("td3", task, "scalarization", measure, weight=weight)


def _below_all_weights(e: Evidence) -> Checks:
    for task in PAPER_TASKS:
        ours = e.side("td3", task, "damper", "sm")
        weights = [_weight(e, task, weight, "sm") for weight in WEIGHTS]
        subject = subject_of("td3", task, "sm")
        if task != "Reacher":
            yield extreme(subject, ours, weights, "lower")
            continue
        there = [side for side in weights if side.values is not None]
        best = min(there, key=lambda side: side.mean, default=weights[0])
        how: dict[str, Any] = {"concession": True, "candidates": len(WEIGHTS)}
        check = compare_means(f"{subject}, the exception", ours, best, "higher", **how)
        # One smoother weight is an exception; that there is none takes them all.
        unknown = check.verdict == BETTER and len(there) < len(WEIGHTS)
        yield check._replace(verdict=OPEN if unknown else check.verdict)


def _beats(e: Evidence, task: str, weights: Sequence[float]) -> dict[float, list[Check]]:
    """Weights before the methods that one of them is said to beat, in both measures."""
    checks: dict[float, list[Check]] = {weight: [] for weight in weights}
    for measure, expect in (("return", "higher"), ("sm", "lower")):
        subject = subject_of("td3", task, measure)
        rivals = [e.side("td3", task, rival, measure) for rival in BEATEN_BY_WEIGHT[task]]
        for weight in weights:
            ours = _weight(e, task, weight, measure)
            checks[weight].append(extreme(subject, ours, rivals, expect, candidates=len(weights)))
    return checks


def _strong_weight(e: Evidence) -> Checks:
    for task, weight in PAPER_WEIGHTS.items():
        yield from _beats(e, task, [weight])[weight]


def _best_weight(e: Evidence) -> Checks:
    order = (HOLDS, LEANS, OPEN, LEANS_AGAINST, CONSTANT, FAILS)  # one weight is enough
    for task, rivals in BEATEN_BY_WEIGHT.items():
        checks = _beats(e, task, WEIGHTS)
        verdict_of = {weight: conjunction(c.verdict for c in checks[weight]) for weight in WEIGHTS}
        verdict = next(word for word in order if word in verdict_of.values())
        lists = {word: _with(verdict_of, word) for word in (HOLDS, LEANS)}
        beating = [f"{word}: {', '.join(weights)}" for word, weights in lists.items() if weights]
        known = len(WEIGHTS) - len(_with(verdict_of, OPEN))
        names = ", ".join(title(rival) for rival in rivals)
        text = f"TD3 {task}: weights that beat {names} in both measures: "
        text += f"{'; '.join(beating) or 'none'} ({known} of {len(WEIGHTS)} known)"
        if known:
            decided = [weight for weight in WEIGHTS if verdict_of[weight] != OPEN]
            best = min(decided, key=lambda weight: order.index(verdict_of[weight]))
            text += ". " + "; ".join(check.text for check in checks[best])
        yield Check(text, verdict)


def _with(verdict_of: dict[float, str], word: str) -> list[str]:
    return [f"{weight:g}" for weight, verdict in verdict_of.items() if verdict == word]


def _margins(e: Evidence) -> Checks:
    named = {
        "Ant": ("grad-caps", paper()["scalarization_td3_other"]["Ant"]["sm"]),
        "Hopper": ("pave", paper()["scalarization_td3_lowest_sm"]["Hopper"]["sm"]),
    }
    for task, (baseline, sm) in named.items():  # the baseline with the lowest sm of the five
        theirs = printed("td3", baseline, task, "sm")
        assert theirs is not None
        size = 1 - sm / theirs.mean
        counts = REACHED_SHARE * size
        words = f"{percent(size, 1)} lower in the paper, {percent(counts, 1)} counts"
        rivals = [e.side("td3", task, rival, "sm") for rival in RIVALS]
        ours, subject = _weight(e, task, PAPER_WEIGHTS[task], "sm"), subject_of("td3", task, "sm")
        yield extreme(subject, ours, rivals, "lower", by=counts, words=words)
    ours = _weight(e, "Hopper", PAPER_WEIGHTS["Hopper"], "return")
    pave = e.side("td3", "Hopper", "pave", "return")
    yield close(subject_of("td3", "Hopper", "return"), ours, pave)


def _limits(e: Evidence) -> Checks:
    for task, methods in SMOOTHER_THAN_WEIGHT.items():
        weight = _weight(e, task, PAPER_WEIGHTS[task], "sm")
        for method in methods:
            theirs = e.side("td3", task, method, "sm")
            yield compare_means(subject_of("td3", task, "sm"), theirs, weight, "lower")
    for task, value in SMOOTHEST_WEIGHT.items():
        for measure in ("sm", "return"):
            rivals = [e.side("td3", task, rival, measure) for rival in RIVALS]
            ours = _weight(e, task, value, measure)
            yield extreme(subject_of("td3", task, measure), ours, rivals, "lower")


CLAIMS: dict[str, Callable[[Evidence], Checks]] = {
    "lower-sm-all": _lower_everywhere,
    "lowest-sm-eight": _lowest,
    "walker-changes": _walker_changes,
    "td3-lunar-both": _lunar,
    "td3-hopper-walker-tradeoff": _large_reduction,
    "sac-best-return": _best_return,
    "sac-ant-walker-tradeoff": _sac_tradeoff,
    "gradient-regime": _gradient_regime,
    "ablation-return": _ablation,
    "sum-collapses": _collapse,
    "sum-close": _sum_close,
    "projection": _projection,
    "pegrad": _pegrad,
    "scalarization-five": _below_all_weights,
    "scalarization-strong": _strong_weight,
    "scalarization-best": _best_weight,
    "scalarization-margins": _margins,
    "scalarization-limits": _limits,
    "eta-monotone": _eta,
}
# Ablations on a task whose published η is not 1, which no experiment trains with another η.
ONE_ETA_UNTRAINED = ("ablation-return", "sum-close", "projection")
# What a claim's word does not say, from the same records; it decides nothing.
NOTES = {"gradient-regime": _about_gradients, "sum-collapses": _collapsed}
