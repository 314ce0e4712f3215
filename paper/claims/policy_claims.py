"""The paper's claims about trained policies.

Where the paper uses a word ("large", "collapses", "slightly", "similar"), the number that stands
for it here is near the paper's own and in the comparison's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
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
    for backbone in BACKBONES:
        for task in PAPER_TASKS:
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
    x, y = (printed("td3", method, task, measure) for method in (ours, theirs))
    assert x is not None and y is not None
    size = 1 - x.mean / y.mean
    words = f"{word}: {percent(size)} lower in the paper, {percent(REACHED_SHARE * size)} counts"
    return _pair(
        e, "td3", task, measure, ours, theirs, "lower", by=REACHED_SHARE * size, words=words
    )


def _best_return(e: Evidence) -> Checks:
    for task in ("LunarLander", "Hopper"):
        yield _best(e, "sac", task, "return", ("plain", *RIVALS), "higher")


def _sac_tradeoff(e: Evidence) -> Checks:
    for task in ("Ant", "Walker"):
        yield _best(e, "sac", task, "sm", ("plain", *RIVALS), "lower")
        yield _pair(e, "sac", task, "return", "damper", "plain", "lower", concession=True)


def _gradient_regime(e: Evidence) -> Checks:
    """Along DAMPER's own training."""
    for backbone in BACKBONES:
        for task in PAPER_TASKS:
            ratio, conflict = (
                e.gradients(backbone, task, name) for name in ("norm_ratio", "conflict")
            )
            subject = f"{backbone.upper()} {task}"
            yield against(
                f"{subject} n_T/n_R",
                ratio,
                WEAK_RATIO,
                "lower",
                f"weak: below {WEAK_RATIO:g}",
                RATIO,
            )
            words = f"frequent: above {FREQUENT_CONFLICT:g}; by chance {CHANCE_CONFLICT:g}"
            yield against(
                f"{subject} share of updates in conflict",
                conflict,
                FREQUENT_CONFLICT,
                "higher",
                words,
                SHARE,
            )


def _about_gradients(e: Evidence) -> str:
    """What the words of the claim leave open."""
    return ". ".join(filter(None, (_conflict_by_chance(e), _plains_gradients(e))))


def _conflict_by_chance(e: Evidence) -> str:
    """The cells in conflict more often than unrelated directions would be."""
    more: list[str] = []
    others: list[str] = []
    for backbone in BACKBONES:
        for task in PAPER_TASKS:
            conflict = e.gradients(backbone, task, "conflict")
            if conflict.values is not None and not conflict.constant:
                check = against("", conflict, CHANCE_CONFLICT, "higher", "")
                (more if check.verdict == HOLDS else others).append(f"{backbone.upper()} {task}")
    if not more and not others:
        return ""
    return (
        f"Unrelated directions would conflict in {CHANCE_CONFLICT:g} of the updates. More do, "
        f"beyond the noise, on {', '.join(more) or 'no task'}"
        + (f"; this is not shown on {', '.join(others)}" if others else "")
    )


def _plains_gradients(e: Evidence) -> str:
    """Both gradients along plain's own training, where they are recorded: means of the pairs."""
    ranges: dict[str, tuple[float, float]] = {}
    for backbone in BACKBONES:
        for task in PAPER_TASKS:
            sides = [
                e.gradients(backbone, task, name, "plain") for name in ("conflict", "norm_ratio")
            ]
            if all(side.values is not None and not side.constant for side in sides):
                conflict, ratio = (side.mean for side in sides)
                ranges[f"{backbone.upper()} {task}"] = conflict, ratio
    if not ranges:
        return ""
    shares, ratios = zip(*ranges.values(), strict=True)
    strong = [subject for subject, (_, ratio) in ranges.items() if ratio > WEAK_RATIO]
    return (
        f"In plain's own training ({counted(len(ranges), 'task–backbone pair')}), {_range(shares)} "
        f"of the updates conflict and n_T/n_R is {_range(ratios)}, above {WEAK_RATIO:g} on "
        f"{', '.join(strong) or 'none'}"
    )


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(values), max(values))))


# --- ablations ------------------------------------------------------------------------------------


def _ablation(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        yield _best(
            e, "td3", task, "return", ("unconditional-projection", "unconditional-sum"), "higher"
        )


def _collapse(e: Evidence) -> Checks:
    yield _reduction(e, "Hopper", "return", "unconditional-sum", "damper", "collapses")
    for other in ("damper", "unconditional-projection"):
        yield _pair(e, "td3", "Hopper", "sm", "unconditional-sum", other, "lower")


def _collapsed(e: Evidence) -> str:
    """How many agents collapse in return, whatever becomes of their smoothness."""
    ours, damper = (
        e.side("td3", "Hopper", method, "return") for method in ("unconditional-sum", "damper")
    )
    x, y = (
        printed("td3", method, "Hopper", "return") for method in ("unconditional-sum", "damper")
    )
    if ours.values is None or damper.values is None or x is None or y is None:
        return ""
    left = 1 - REACHED_SHARE * (1 - x.mean / y.mean)
    count = int((ours.values < left * damper.mean).sum())
    return (
        f"Return alone: {count} of {len(ours.values)} agents earn less than {percent(left)} of "
        "DAMPER's mean return"
    )


def _sum_close(e: Evidence) -> Checks:
    sides = (
        e.side("td3", "LunarLander", method, "return") for method in ("unconditional-sum", "damper")
    )
    yield close(subject_of("td3", "LunarLander", "return"), *sides)


def _projection(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        ours, damper = (
            e.side("td3", task, method, "return")
            for method in ("unconditional-projection", "damper")
        )
        subject = subject_of("td3", task, "return")
        if task == "Hopper":
            yield close(subject, ours, damper)
        else:
            yield compare_means(subject, ours, damper, "lower")
            yield compare_means(
                f"{subject}, mean distance from the median", ours.spread, damper.spread, "higher"
            )


def _pegrad(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        yield _reduction(e, task, "sm", "damper", "pegrad", "smoother")
    for task in ("LunarLander", "Hopper"):
        yield _pair(e, "td3", task, "return", "damper", "pegrad", "higher")
    yield _pair(e, "td3", "Walker", "return", "damper", "pegrad", "lower", concession=True)
    words = f"slightly: no more than {percent(CLOSE_MARGIN)} lower"
    yield _pair(
        e, "td3", "Walker", "return", "damper", "pegrad", "higher", by=CLOSE_MARGIN, words=words
    )


def _eta(e: Evidence) -> Checks:
    for task in ABLATION_TASKS:
        sides = [e.side("td3", task, "damper", "sm", eta=eta) for eta in ETAS]
        subject = subject_of("td3", task, "sm")
        if task == "Walker":
            bump = {eta: sides[ETAS.index(eta)] for eta in (0.4, 0.6, 0.8)}
            for eta in (0.4, 0.8):
                yield compare_means(
                    f"{subject}, a bump at η = 0.6", bump[0.6], bump[eta], "higher", concession=True
                )
        else:
            for former, later in pairwise(sides):
                yield compare_means(subject, later, former, "lower")
        yield extreme(f"{subject}, lowest at η = 1", sides[-1], sides[:-1], "lower")


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
        check = compare_means(
            f"{subject}, the exception",
            ours,
            best,
            "higher",
            concession=True,
            candidates=len(WEIGHTS),
        )
        # One smoother weight is an exception; that there is none takes them all.
        unknown = check.verdict == BETTER and len(there) < len(WEIGHTS)
        yield check._replace(verdict=OPEN if unknown else check.verdict)


def _beats(e: Evidence, task: str, weights: Sequence[float]) -> dict[float, list[Check]]:
    """Weights before the methods that one of them is said to beat, in both measures."""
    checks: dict[float, list[Check]] = {weight: [] for weight in weights}
    for measure, expect in (("return", "higher"), ("sm", "lower")):
        rivals = [e.side("td3", task, rival, measure) for rival in BEATEN_BY_WEIGHT[task]]
        for weight in weights:
            ours = _weight(e, task, weight, measure)
            checks[weight].append(
                extreme(
                    subject_of("td3", task, measure), ours, rivals, expect, candidates=len(weights)
                )
            )
    return checks


def _strong_weight(e: Evidence) -> Checks:
    for task, weight in PAPER_WEIGHTS.items():
        yield from _beats(e, task, [weight])[weight]


def _best_weight(e: Evidence) -> Checks:
    for task, rivals in BEATEN_BY_WEIGHT.items():
        found = _beats(e, task, WEIGHTS)
        verdict_of = {
            weight: conjunction(check.verdict for check in checks)
            for weight, checks in found.items()
        }
        order = (HOLDS, LEANS, OPEN, LEANS_AGAINST, CONSTANT, FAILS)  # one weight is enough
        verdict = next(word for word in order if word in verdict_of.values())
        beating = [
            f"{word}: {', '.join(weights)}"
            for word in (HOLDS, LEANS)
            if (weights := _with(verdict_of, word))
        ]
        known = len(WEIGHTS) - len(_with(verdict_of, OPEN))
        names = ", ".join(title(rival) for rival in rivals)
        text = (
            f"TD3 {task}: weights that beat {names} in both measures: "
            f"{'; '.join(beating) or 'none'}"
        )
        best = min(
            WEIGHTS,
            key=lambda weight: (verdict_of[weight] == OPEN, order.index(verdict_of[weight])),
        )
        gaps = "; ".join(check.text for check in found[best]) if known else ""
        yield Check(f"{text} ({known} of {len(WEIGHTS)} known). {gaps}".strip(" ."), verdict)


def _with(verdict_of: dict[float, str], word: str) -> list[str]:
    return [f"{weight:g}" for weight, verdict in verdict_of.items() if verdict == word]


def _margins(e: Evidence) -> Checks:
    baselines = {"Ant": "grad-caps", "Hopper": "pave"}  # with the lowest sm of the five
    named = {"Ant": paper()["scalarization_td3_other"]["Ant"]["sm"]}
    named["Hopper"] = paper()["scalarization_td3_lowest_sm"]["Hopper"]["sm"]
    for task, baseline in baselines.items():
        theirs = printed("td3", baseline, task, "sm")
        assert theirs is not None
        size = 1 - named[task] / theirs.mean
        words = f"{percent(size, 1)} lower in the paper, {percent(REACHED_SHARE * size, 1)} counts"
        rivals = [e.side("td3", task, rival, "sm") for rival in RIVALS]
        ours, subject = (_weight(e, task, PAPER_WEIGHTS[task], "sm"), subject_of("td3", task, "sm"))
        yield extreme(subject, ours, rivals, "lower", by=REACHED_SHARE * size, words=words)
    sides = (
        _weight(e, "Hopper", PAPER_WEIGHTS["Hopper"], "return"),
        e.side("td3", "Hopper", "pave", "return"),
    )
    yield close(subject_of("td3", "Hopper", "return"), *sides)


def _limits(e: Evidence) -> Checks:
    for task, methods in SMOOTHER_THAN_WEIGHT.items():
        weight = _weight(e, task, PAPER_WEIGHTS[task], "sm")
        for method in methods:
            theirs = e.side("td3", task, method, "sm")
            yield compare_means(subject_of("td3", task, "sm"), theirs, weight, "lower")
    for task, value in SMOOTHEST_WEIGHT.items():
        for measure in ("sm", "return"):
            rivals = [e.side("td3", task, rival, measure) for rival in RIVALS]
            yield extreme(
                subject_of("td3", task, measure), _weight(e, task, value, measure), rivals, "lower"
            )


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
# Compare ablations on a task whose published η is not 1; no experiment trains those with another η
# than DAMPER's.
ONE_ETA_UNTRAINED = ("ablation-return", "sum-close", "projection")
# What a claim's word does not say, from the same records; it decides nothing.
NOTES: dict[str, Callable[[Evidence], str]] = {
    "gradient-regime": _about_gradients,
    "sum-collapses": _collapsed,
}
