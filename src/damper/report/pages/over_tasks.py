"""What the tasks say together: DAMPER's return beside plain's, and DAMPER beside the other methods."""

from __future__ import annotations

from collections.abc import Sequence

from damper.experiments.paper import title
from damper.experiments.paper_experiments import BACKBONES, RIVALS
from damper.report.statistics.cells import MEASURES, Setup
from damper.report.statistics.numbers import bracketed, percent, signed
from damper.report.tables.result_tables import Aggregate, aggregates

EVEN = 0.5  # the probability of winning where there is no difference
WORDS = ("better than", "worse than", "undecided beside")


def return_over_tasks(setup: Setup) -> str:
    """How often a seed of DAMPER earns more than one of plain, per backbone; empty where nothing can be told."""
    found = {(a.backbone, a.method): a for a in aggregates(setup) if a.measure == "return"}
    wins, changes = [], []
    for backbone in BACKBONES:
        beside, own = found.get((backbone, "plain")), found.get((backbone, "damper"))
        if beside is None or beside.improvement is None:
            continue
        where = f"with {backbone.upper()}"
        value, low, high = beside.improvement
        wins.append(f"{percent(value)} [{100 * low:.0f}, {100 * high:.0f}] of pairs {where} ({_tasks([beside])})")
        if own and own.change and (own.change[1] > 0 or own.change[2] < 0):
            change, *bounds = own.change
            changes.append(f"{signed(change)} {bracketed(*bounds)} {where}")
    if not wins:
        return ""
    changed = f"; the interquartile mean of return's change is {' and '.join(changes)}" if changes else ""
    return f"Over the tasks together a DAMPER seed earns more than a plain one in {' and in '.join(wins)}{changed}."


def beside_the_others(setup: Setup) -> str:
    """Which methods DAMPER beats beyond the noise, and which beat it, over the tasks that both have."""
    found = aggregates(setup)
    parts = []
    for backbone in BACKBONES:
        rivals = [a for a in found if a.backbone == backbone and a.method in RIVALS and a.improvement]
        told = []
        for measure in ("mean_change", "return"):
            if own := [a for a in rivals if a.measure == measure]:
                told.append(f"{MEASURES[measure]} {_words(own)}")
        if told:
            parts.append(f"{backbone.upper()} ({_tasks(rivals)}): {'; '.join(told)}.")
    if not parts:
        return ""
    return (
        "**Beside the other methods**, over the tasks that both have, by the probability that a seed of DAMPER is the "
        f"better one ([all numbers](results/tables.md)). {' '.join(parts)}"
    )


def _words(found: Sequence[Aggregate]) -> str:
    """The methods by what the intervals say of them."""
    sorted_by: dict[str, list[str]] = {word: [] for word in WORDS}
    for a in found:
        assert a.improvement is not None
        _, low, high = a.improvement
        sorted_by[WORDS[0 if low > EVEN else 1 if high < EVEN else 2]].append(title(a.method, a.backbone))
    return ", ".join(f"{word} {_list(names)}" for word, names in sorted_by.items() if names)


def _list(names: Sequence[str]) -> str:
    if len(names) == len(RIVALS):
        return "all five"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _tasks(found: Sequence[Aggregate]) -> str:
    """How many tasks stand behind each, in words."""
    counts = sorted({a.tasks for a in found})
    return f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} task{'s' * (counts[-1] > 1)}"
