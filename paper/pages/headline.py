"""DAMPER against plain on every task and backbone, straight from the records: in short, and with all numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from damper.intervals import HIGHER, LOWER, NOT_COUNTED, UNDECIDED
from damper.tables import markdown_table
from damper.terminal import counted, joined
from paper.experiments.catalogue import BACKBONES, ONE_ETA
from paper.experiments.printed import printed
from paper.pages.over_tasks import return_over_tasks
from paper.statistics.cells import MEASURES, Cell, Setup, main_setups
from paper.statistics.change import change, constant_notes
from paper.statistics.numbers import number

CONSTANT_ACTION = "docs/results.md#policies-with-one-constant-action"  # as seen from the README
README_COLUMNS = {
    "mean_change": "action change per step",
    "return": "return",
}  # measure: its header
JUDGED = ("mean_change", "return")  # what a verdict is about: smoothness, then return
NO_BREAK = "\u00a0"  # a space at which no line ends
PERCENTAGES = (
    "A change in return is (DAMPER − plain)/|plain|: + is better even where returns are negative, "
    "but the percentage "
    "depends on where the task puts its zero."
)
NEGLIGIBLE_CHANGE = 0.1  # a change whose whole interval is smaller is none to speak of


def headline(found: Sequence[Setup]) -> str:
    """The README's table, of the first setup that keeps to its protocol: what DAMPER changes, a line per task."""
    header = [
        "plain → DAMPER",
        *README_COLUMNS.values(),
        "verdict",
        "η",
        f"verdict at η = {ONE_ETA:g}",
    ]
    for setup in main_setups(found):
        rows, usual = [], usual_seeds(setup)
        for plain, ours in pairs(setup):
            one = setup.find(ours.backbone, ours.task, "damper", eta=ONE_ETA)
            numbers = [_arrow(plain, ours, measure) for measure in README_COLUMNS]
            words = (
                "the same"
                if one is ours
                else "not yet trained"
                if one is None
                else _message(plain, one)
            )
            rows.append(
                [
                    _place(plain, ours, usual),
                    *numbers,
                    _message(plain, ours),
                    f"{ours.settings['eta']:g}",
                    words,
                ]
            )
        if rows:
            result = f"At the paper's η {_in_short(setup)}", return_over_tasks(setup)
            said = *result, _one_eta(setup), constant_at_one(setup, CONSTANT_ACTION)
            paragraphs = " ".join(filter(None, said)), f"{_how(setup)} {PERCENTAGES}"
            return "\n\n".join([markdown_table(header, rows).strip(), *paragraphs]) + "\n"
    return "No records yet.\n"


def _how(setup: Setup) -> str:
    """What the table's numbers are."""
    made = f"Protocol `{setup.protocol}`, {'TF32' if setup.numerics.get('tf32') else 'float32'}."
    return (
        f"{made} {means_of(setup)} Below them: the change with its 95 % interval, bold where "
        "that excludes zero."
    )


def means_of(setup: Setup) -> str:
    """How many seeds the means are of."""
    usual = usual_seeds(setup)
    means = f"Means of {usual} seeds" if usual != "1" else "One seed"
    return means + (
        ", unless a row gives another n."
        if any(_seeds(*pair) != usual for pair in pairs(setup))
        else "."
    )


def _place(plain: Cell, ours: Cell, usual: str) -> str:
    """Task and backbone, and the number of seeds where it is not the usual one."""
    return ours.place + (
        f"<br><small>n = {seeds}</small>" if (seeds := _seeds(plain, ours)) != usual else ""
    )


def usual_seeds(setup: Setup) -> str:
    """How many seeds most pairs have."""
    return (
        Counter(_seeds(*pair) for pair in pairs(setup)).most_common(1)[0][0]
        if any(pairs(setup))
        else ""
    )


def _in_short(setup: Setup, eta: float | None = None) -> str:
    """``counts_of_signs`` in the words of the README's columns."""
    return counts_of_signs(setup, eta).replace(MEASURES["mean_change"], "action change")


def _one_eta(setup: Setup) -> str:
    """What is left where nothing is chosen."""
    return (
        "The paper chooses η per task and backbone. With the same η everywhere nothing is left to "
        "choose: at "
        f"η = {ONE_ETA:g}, {_in_short(setup, ONE_ETA) or 'nothing is on record yet.'}"
    )


def constant_at_one(setup: Setup, link: str = "") -> str:
    """How many agents trained with η = 1 ended in one constant action, and where, unless a link tells."""
    cells = [
        cell for cell in setup.cells if cell.method == "damper" and cell.settings["eta"] == ONE_ETA
    ]
    held = [
        f"{cell.place} ({len(cell.constant)} of {len(cell.seeds)})"
        for cell in cells
        if cell.constant
    ]
    if not held:
        return ""
    agents = sum(len(cell.constant) for cell in cells)
    every = counted(sum(len(cell.seeds) for cell in cells), "agent")
    words = f"[one constant action]({link})" if link else f"one constant action: {'; '.join(held)}"
    return f"{agents} of the {every} trained with η = {ONE_ETA:g} ended in {words}."


def pairs(setup: Setup, eta: float | None = None) -> Iterator[tuple[Cell, Cell]]:
    """Plain and DAMPER of every task and backbone that has both; at the paper's η, or at another."""
    changed = {} if eta is None else {"eta": eta}
    for backbone in BACKBONES:
        for task in setup.tasks(backbone):
            plain, ours = (
                setup.find(backbone, task, "plain"),
                setup.find(backbone, task, "damper", **changed),
            )
            if plain is not None and ours is not None:
                yield plain, ours


def _message(plain: Cell, ours: Cell) -> str:
    """What the intervals say, and no more."""
    smooth, earned = (change(plain, ours, measure) for measure in JUDGED)
    word, most = earned.sign, max(map(abs, earned.interval or (np.inf,)))
    if most < NEGLIGIBLE_CHANGE:
        bound = f"{np.ceil(100 * most):.0f} %"
        word = f"within {bound}" if word == UNDECIDED else f"{word} by {bound} at most"
    smoother = {
        LOWER: "smoother, ",
        HIGHER: "less smooth, ",
        UNDECIDED: "smoothness undecided, ",
        NOT_COUNTED: "",
    }
    return "; ".join([f"{smoother[smooth.sign]}return {word}", *constant_notes(plain, ours)])


def counts_of_signs(setup: Setup, eta: float | None = None) -> str:
    """How often the interval of a change tells its sign, at the paper's η or another; empty if nothing is compared."""
    both = list(pairs(setup, eta))
    if not both:
        return ""
    parts = []
    for measure, of in zip(
        JUDGED, (f" of {counted(len(both), 'task–backbone pair')}", ""), strict=True
    ):
        words = Counter(change(*pair, measure).sign for pair in both)
        first, *others = [
            f"{word} in {words[word]}"
            for word in (LOWER, HIGHER, UNDECIDED, NOT_COUNTED)
            if words[word]
        ]
        why = " (most agents there hold one constant action)" if words[NOT_COUNTED] else ""
        parts.append(f"{MEASURES[measure]} is {joined([first + of, *others])}{why}")
    return f"DAMPER's {parts[0]}; its {parts[1]}."


def comparison_table(setup: Setup, measures: Sequence[str]) -> str:
    """All numbers: a row for every task and backbone that has both, and one for η = 1 where the paper's is another."""
    header = ["plain → DAMPER", "η", *(MEASURES[name] for name in measures)]
    rows, usual = [], usual_seeds(setup)
    for plain, ours in pairs(setup):
        one = setup.find(ours.backbone, ours.task, "damper", eta=ONE_ETA)
        for cell in (ours,) if one is None or one is ours else (ours, one):
            notes = (f"<small>{note}</small>" for note in constant_notes(plain, cell))
            place = "<br>".join([_place(plain, cell, usual), *notes])
            numbers = [_numbers(plain, cell, measure) for measure in measures]
            rows.append([place, f"{cell.settings['eta']:g}", *numbers])
    return markdown_table(header, rows) if rows else ""


def _numbers(plain: Cell, ours: Cell, measure: str) -> str:
    """Means, change and what the paper prints, a line each; of a length the means, or the one it has."""
    if measure == "length":
        lines = [
            " → ".join(dict.fromkeys(number(cell.mean(measure), measure) for cell in (plain, ours)))
        ]
    else:
        lines = [
            _arrow(plain, ours, measure),
            _without_constant(plain, ours, measure),
            _paper(ours, measure),
        ]
    return "<br>".join(filter(None, lines)).replace(" ", NO_BREAK)


def _without_constant(plain: Cell, ours: Cell, measure: str) -> str:
    """The change without the agents that hold one action, where they are few."""
    few = len(plain.constant) + len(ours.constant)
    if not few or plain.mostly_constant or ours.mostly_constant:
        return ""
    a, b = (cell.only({*cell.seeds} - {*cell.constant}) for cell in (plain, ours))
    return f"<small>without {'it' if few == 1 else 'them'} {change(a, b, measure)}</small>"


def _seeds(*cells: Cell) -> str:
    counts = {len(cell.seeds) for cell in cells}
    return "/".join(str(count) for count in sorted(counts))


def _arrow(plain: Cell, ours: Cell, measure: str) -> str:
    """Both means and the change, in bold where its interval excludes zero."""
    a, b = plain.summary(measure), ours.summary(measure)
    if a is None or b is None:
        return "–"
    found = change(plain, ours, measure)
    told = f"**{found}**" if found.sign in (LOWER, HIGHER) else str(found)
    return f"{number(a.mean, measure)} → {number(b.mean, measure)}<br>{told}"


def _paper(ours: Cell, measure: str) -> str:
    """What the paper prints for both."""
    both = [printed(ours.backbone, method, ours.task, measure) for method in ("plain", ours.method)]
    shown = [number(entry.mean, measure) for entry in both if entry]
    return (
        f"<small>paper {' → '.join(shown)}</small>"
        if ours.published and len(shown) == len(both)
        else ""
    )
