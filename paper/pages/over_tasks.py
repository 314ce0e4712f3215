"""What the tasks say together: DAMPER's return against plain's, and DAMPER against the other methods."""

from __future__ import annotations

from collections.abc import Sequence

from damper.intervals import bracketed, percent, signed
from damper.terminal import joined
from paper.experiments.catalogue import BACKBONES, RIVALS
from paper.experiments.printed import title
from paper.statistics.cells import MEASURES, Setup
from paper.tables.result_tables import Aggregate, aggregates

EVEN = 0.5  # the probability of winning where there is no difference
WORDS = ("better than that of", "worse than that of", "undecided against")


def return_over_tasks(setup: Setup) -> str:
    """The probability that a DAMPER seed earns more than a plain one, per backbone; empty where there is none."""
    found = {(a.backbone, a.method): a for a in aggregates(setup) if a.measure == "return"}
    wins, changes = [], []
    for backbone in BACKBONES:
        beside, own = found.get((backbone, "plain")), found.get((backbone, "damper"))
        if beside is None or beside.improvement is None:
            continue
        where = f"with {backbone.upper()}"
        value, low, high = beside.improvement
        wins.append(
            f"{percent(value)} [{100 * low:.0f}, {100 * high:.0f}] {where} ({_tasks([beside])})"
        )
        if own and own.change and (own.change[1] > 0 or own.change[2] < 0):
            change, *bounds = own.change
            changes.append(f"{signed(change)} {bracketed(*bounds)} {where}")
    if not wins:
        return ""
    changed = (
        f" The interquartile mean of the change in return is {joined(changes)}." if changes else ""
    )
    return (
        "The probability that a DAMPER seed earns more than a plain seed, averaged over the tasks, "
        "is "
        f"{joined(wins)}.{changed}"
    )


def beside_the_others(setup: Setup) -> str:
    """Which methods DAMPER beats beyond the noise, and which beat it, over the tasks that both have."""
    found = aggregates(setup)
    parts = []
    for backbone in BACKBONES:
        rivals = [
            a for a in found if a.backbone == backbone and a.method in RIVALS and a.improvement
        ]
        told = []
        for measure in ("mean_change", "return"):
            if own := [a for a in rivals if a.measure == measure]:
                told.append(f"its {MEASURES[measure]} is {_words(own)}")
        if told:
            parts.append(f"With {backbone.upper()} ({_tasks(rivals)}) {'; '.join(told)}.")
    if not parts:
        return ""
    return (
        "**DAMPER against the other methods**, by the probability that a DAMPER seed is the better "
        "one, over the tasks "
        f"that both have ([all numbers](results/tables.md)). {' '.join(parts)}"
    )


def _words(found: Sequence[Aggregate]) -> str:
    """The methods by what the intervals say of them."""
    sorted_by: dict[str, list[str]] = {word: [] for word in WORDS}
    for a in found:
        assert a.improvement is not None
        _, low, high = a.improvement
        sorted_by[WORDS[0 if low > EVEN else 1 if high < EVEN else 2]].append(
            title(a.method, a.backbone)
        )
    return ", and ".join(
        f"{word} {'all five' if len(names) == len(RIVALS) else joined(names)}"
        for word, names in sorted_by.items()
        if names
    )


def _tasks(found: Sequence[Aggregate]) -> str:
    """How many tasks stand behind each, in words."""
    counts = sorted({a.tasks for a in found})
    return (
        f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} "
        f"task{'s' * (counts[-1] > 1)}"
    )
