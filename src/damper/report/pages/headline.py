"""DAMPER beside plain on every task and backbone, straight from the records: in short, and with all numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from damper.experiments.paper import printed
from damper.experiments.paper_experiments import BACKBONES, ONE_ETA
from damper.report.pages.over_tasks import return_over_tasks
from damper.report.statistics.cells import MEASURES, NEVER_NEGATIVE, SMOOTHNESS, Cell, Setup, main_setups
from damper.report.statistics.estimates import Interval, ratio_change, relative_change
from damper.report.statistics.numbers import number, signed, tight
from damper.report.tables.markup import markdown_table
from damper.terminal import counted

UNDECIDED, NOT_COUNTED = "undecided", "not counted"
CONSTANT_ACTION = "docs/results.md#policies-with-one-constant-action"  # as seen from the README
SHOWN = ("mean_change", "return")
NO_BREAK = "\u00a0"  # a space at which no line ends
PERCENTAGES = (
    "A return's change is (x − plain)/|plain|, so that + is better also below zero; its size depends on where the task "
    "puts its zero."
)
NEGLIGIBLE_CHANGE = 0.1  # a change whose whole interval is smaller is none to speak of


def headline(found: Sequence[Setup]) -> str:
    """The README's table, of the first setup that keeps to its protocol: what DAMPER changes, a line per task."""
    header = ["plain → DAMPER", "action change per step", "return", "verdict", "η", f"with η = {ONE_ETA:g}"]
    for setup in main_setups(found):
        rows, usual = [], usual_seeds(setup)
        for plain, ours in pairs(setup):
            one = setup.find(ours.backbone, ours.task, "damper", eta=ONE_ETA)
            numbers = [_arrow(plain, ours, measure) for measure in SHOWN]
            words = "the same" if one is ours else "not yet trained" if one is None else _message(plain, one)
            rows.append(
                [_place(plain, ours, usual), *numbers, _message(plain, ours), f"{ours.settings['eta']:g}", words]
            )
        if rows:
            said = [
                (_how(setup), PERCENTAGES),
                (return_over_tasks(setup), _one_eta(setup), constant_at_one(setup, CONSTANT_ACTION)),
            ]
            paragraphs = (" ".join(filter(None, sentences)) for sentences in said)
            return "\n\n".join([markdown_table(header, rows).strip(), *paragraphs]) + "\n"
    return "No records yet.\n"


def _how(setup: Setup) -> str:
    """What the table's numbers are."""
    made = f"Protocol `{setup.protocol}`, {'TF32' if setup.numerics.get('tf32') else 'float32'}."
    return f"{made} {means_of(setup)} Bold: changes whose 95 % interval excludes zero."


def means_of(setup: Setup) -> str:
    """How many seeds the means are of."""
    usual = usual_seeds(setup)
    means = f"Means of {usual} seeds" if usual != "1" else "One seed"
    return means + (", unless a row says n." if any(_seeds(*pair) != usual for pair in pairs(setup)) else ".")


def _place(plain: Cell, ours: Cell, usual: str) -> str:
    """Task and backbone, and the number of seeds where it is not the usual one."""
    return ours.place + (f"<br><small>n = {seeds}</small>" if (seeds := _seeds(plain, ours)) != usual else "")


def usual_seeds(setup: Setup) -> str:
    """How many seeds most pairs have."""
    return Counter(_seeds(*pair) for pair in pairs(setup)).most_common(1)[0][0] if any(pairs(setup)) else ""


def _one_eta(setup: Setup) -> str:
    """What is left where nothing is chosen."""
    counts = _counts(setup, ONE_ETA).replace(MEASURES["mean_change"], "action change")
    return (
        f"η is the paper's, chosen per task and backbone. With η = {ONE_ETA:g} everywhere, which leaves nothing to "
        f"choose: {counts or 'nothing is on record yet.'}"
    )


def constant_at_one(setup: Setup, link: str = "") -> str:
    """How many agents trained with η = 1 ended in one constant action, and where."""
    cells = [cell for cell in setup.cells if cell.method == "damper" and cell.settings["eta"] == ONE_ETA]
    held = [f"{cell.place} ({len(cell.constant)} of {len(cell.seeds)})" for cell in cells if cell.constant]
    if not held:
        return ""
    agents = sum(len(cell.constant) for cell in cells)
    every = counted(sum(len(cell.seeds) for cell in cells), "agent")
    words = f"[one constant action]({link})" if link else "one constant action"
    ended = f"{agents} of the {every} trained with η = {ONE_ETA:g} ended in {words}"
    return f"{ended}, the same throughout an episode: {'; '.join(held)}."


def pairs(setup: Setup, eta: float | None = None) -> Iterator[tuple[Cell, Cell]]:
    """Plain and DAMPER of every task and backbone that has both; at the paper's η, or at another."""
    changed = {} if eta is None else {"eta": eta}
    for backbone in BACKBONES:
        for task in setup.tasks(backbone):
            plain, ours = setup.find(backbone, task, "plain"), setup.find(backbone, task, "damper", **changed)
            if plain is not None and ours is not None:
                yield plain, ours


def _message(plain: Cell, ours: Cell) -> str:
    """What the intervals say, and no more."""
    smooth, (word, most) = sign_of_change(plain, ours, "mean_change")[0], sign_of_change(plain, ours, "return")
    smooth = {"lower": "smoother", "higher": "less smooth"}.get(smooth, f"smoothness {smooth}")
    bound = f"{abs(np.ceil(100 * most)):.0f} %" if most < NEGLIGIBLE_CHANGE else ""
    if bound:
        word = f"within {bound}" if word == UNDECIDED else f"{word} by {bound} at most"
    said = f"{smooth}, return {word}" if _comparable(plain, ours, "mean_change") else f"return {word}"
    return "; ".join([said, *_constant_notes(plain, ours)])


def _comparable(plain: Cell, ours: Cell, measure: str) -> bool:
    """Whether a difference means anything: the smoothness of one constant action does not."""
    return measure not in SMOOTHNESS or not (plain.mostly_constant or ours.mostly_constant)


def _constant_notes(plain: Cell, ours: Cell) -> list[str]:
    notes = {"": ours.constant_note, "plain: ": plain.constant_note}
    return [who + note for who, note in notes.items() if note]


def sign_of_change(plain: Cell, ours: Cell, measure: str) -> tuple[str, float]:
    """The sign of a change as far as its interval tells, and the largest size that the interval allows."""
    if not _comparable(plain, ours, measure):
        return NOT_COUNTED, np.inf
    _, interval = _change(plain, ours, measure)
    low, high = interval or (-np.inf, np.inf)
    return "lower" if high < 0 else "higher" if low > 0 else UNDECIDED, max(-low, high)


def takeaway(setup: Setup, eta: float | None = None) -> str:
    """How many pairs are smoother and how many earn less, in a sentence; at the paper's η, or at another."""
    counts = _counts(setup, eta)
    return counts[:1].upper() + counts[1:]


def _counts(setup: Setup, eta: float | None = None) -> str:
    """How often the interval of a change tells its sign; empty if there is nothing to compare."""
    both = list(pairs(setup, eta))
    if not both:
        return ""
    parts = []
    for measure in SHOWN:
        words = Counter(sign_of_change(*pair, measure)[0] for pair in both)
        order = ("lower", "higher", UNDECIDED, NOT_COUNTED)
        *first, last = [f"{word} in {words[word]}" for word in order if words[word]]
        counts = f"{', '.join(first)} and {last}" if first else last
        why = ", where most agents hold one constant action" if words[NOT_COUNTED] else ""
        parts.append(f"{MEASURES[measure]} is {counts}{why}")
    return f"of {counted(len(both), 'pair')} of task and backbone, DAMPER's {parts[0]}; its {parts[1]}."


def comparison_table(setup: Setup, measures: Sequence[str]) -> str:
    """All numbers: a row for every task and backbone that has both, and one for η = 1 where the paper's is another."""
    header = ["plain → DAMPER", "η", *(MEASURES[name] for name in measures)]
    rows, usual = [], usual_seeds(setup)
    for plain, ours in pairs(setup):
        one = setup.find(ours.backbone, ours.task, "damper", eta=ONE_ETA)
        for cell in (ours,) if one is None or one is ours else (ours, one):
            notes = (f"<small>{note}</small>" for note in _constant_notes(plain, cell))
            place = "<br>".join([_place(plain, cell, usual), *notes])
            numbers = [_numbers(plain, cell, measure) for measure in measures]
            rows.append([place, f"{cell.settings['eta']:g}", *numbers])
    return markdown_table(header, rows) if rows else ""


def _numbers(plain: Cell, ours: Cell, measure: str) -> str:
    """Means, change, medians and what the paper prints, a line each; of a length the means, or the one it has."""
    if measure == "length":
        lines = [" → ".join(dict.fromkeys(number(cell.mean(measure), measure) for cell in (plain, ours)))]
    else:
        lines = [_arrow(plain, ours, measure), _without_constant(plain, ours, measure)]
        lines += [_medians(plain, ours, measure), _paper(ours, measure)]
    return "<br>".join(filter(None, lines)).replace(" ", NO_BREAK)


def _without_constant(plain: Cell, ours: Cell, measure: str) -> str:
    """The change without the agents that hold one action, where they are few."""
    few = len(plain.constant) + len(ours.constant)
    if not few or plain.mostly_constant or ours.mostly_constant:
        return ""
    a, b = (
        replace(cell, records=tuple(r for r in cell.records if r.identity["seed"] not in cell.constant))
        for cell in (plain, ours)
    )
    return f"<small>without {'it' if few == 1 else 'them'} {change_text(a, b, measure)}</small>"


def _seeds(*cells: Cell) -> str:
    counts = {len(cell.seeds) for cell in cells}
    return "/".join(str(count) for count in sorted(counts))


def _arrow(plain: Cell, ours: Cell, measure: str) -> str:
    """Both means and the change, in bold where its interval excludes zero."""
    a, b = plain.summary(measure), ours.summary(measure)
    if a is None or b is None:
        return "–"
    change, decided = change_text(plain, ours, measure), sign_of_change(plain, ours, measure)[0] in ("lower", "higher")
    return f"{number(a.mean, measure)} → {number(b.mean, measure)}<br>{f'**{change}**' if decided else change}"


def _medians(plain: Cell, ours: Cell, measure: str) -> str:
    """Both medians, to stand below the means: one seed can carry a mean."""
    a, b = plain.summary(measure), ours.summary(measure)
    return f"<small>medians {number(a.median, measure)} → {number(b.median, measure)}</small>" if a and b else ""


def _paper(ours: Cell, measure: str) -> str:
    """What the paper prints for both."""
    both = [printed(ours.backbone, method, ours.task, measure) for method in ("plain", ours.method)]
    shown = [number(entry.mean, measure) for entry in both if entry]
    return f"<small>paper {' → '.join(shown)}</small>" if ours.published and len(shown) == len(both) else ""


def has_interval(plain: Cell, ours: Cell, measure: str) -> bool:
    """Whether a change comes with an interval; or is none, of smoothness of one constant action."""
    return not _comparable(plain, ours, measure) or _change(plain, ours, measure)[1] is not None


def change_text(plain: Cell, ours: Cell, measure: str) -> str:
    """The change of the mean in per cent of plain's, with its interval; none in smoothness of one constant action."""
    if not _comparable(plain, ours, measure):
        return "; ".join(_constant_notes(plain, ours))
    value, interval = _change(plain, ours, measure)
    return signed(value) + (f" {tight(*interval)}" if interval else "")


def _change(plain: Cell, ours: Cell, measure: str) -> tuple[float, Interval | None]:
    if measure in NEVER_NEGATIVE:
        return ratio_change(ours.means(measure), plain.means(measure))
    return relative_change({"": ours.means(measure)}, {"": plain.means(measure)}, np.mean)
