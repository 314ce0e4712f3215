"""What the results page says about the records, written from them, so that it cannot drift."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from damper.experiments.paper import printed, title
from damper.experiments.paper_experiments import BACKBONES, ETAS, ONE_ETA, TABLE_METHODS
from damper.experiments.timings import Timing
from damper.metrics import CONSTANT_CHANGE
from damper.report.claims.comparisons import FAILS, HOLDS, MIN_SEEDS, OPEN, VERDICTS, claim_level
from damper.report.claims.verdicts import Verdict, time_verdicts, verdicts
from damper.report.pages.headline import change_text, comparison_table, takeaway
from damper.report.statistics.cells import COMPARED, MEASURES, Cell, Setup, main_setups
from damper.report.statistics.estimates import (
    Array,
    difference,
    mean_interval,
    squared_error,
    starts_error,
    welch_interval,
)
from damper.report.statistics.numbers import number, percent, span, with_interval
from damper.report.tables.markup import markdown_table
from damper.report.tables.result_tables import code
from damper.tasks import PAPER_TASKS

PAPER_SEEDS = 5


def findings(found: Sequence[Setup], timings: Sequence[Timing]) -> str:
    """Everything with a number in it that the results page says."""
    main = main_setups(found)
    if not main:
        return "No records yet.\n"
    pairs = [_pairs(setup) for setup in main]
    results = [_extent(found), *pairs, *_constant(found), *_verdicts(main, timings), *_etas(main)]
    caveats = [*_protocols(main), *_precision(found), *_units(found), _starts(main), _end_of_training(main)]
    return "\n".join([*results, *caveats, _code(main)])


def _extent(found: Sequence[Setup]) -> str:
    """How much of the paper's main tables is there."""
    full = {}
    for setup in main_setups(found):
        cells = [cell for cell in setup.cells if cell.published and cell.method in TABLE_METHODS]
        full[setup.protocol] = sum(len(cell.seeds) >= MIN_SEEDS for cell in cells)
    stand = " and ".join(f"{count} under `{protocol}`" for protocol, count in full.items()) or "none"
    whole = len(PAPER_TASKS) * 2 * len(TABLE_METHODS)
    parts = [f"{sum(setup.agents for setup in found)} agents are on record."]
    parts.append(f"Of the {whole} cells of the paper's two main tables {stand} have five seeds.")
    frozen = sum(len(cell.frozen) for setup in found for cell in setup.cells)
    parts.append(f"{frozen or 'None'} of the agents diverged.")
    return " ".join(parts) + "\n"


def _constant(found: Sequence[Setup]) -> Iterator[str]:
    """Cells with agents that ended at one and the same action."""
    cells = [(setup, cell) for setup in found for cell in setup.cells if cell.constant]
    if not cells:
        return
    agents = sum(len(cell.constant) for _, cell in cells)
    yield "### Policies with one constant action\n"
    yield (
        f"**{agents} agents act alike at every step, whatever they observe** (mean |Δa| below {CONSTANT_CHANGE:g} in "
        "every episode). Their sm is the lowest there can be and says nothing about smooth control, so it is [not "
        "counted](statistics.md#constant-actions) as smooth where they are most of a cell. Short episodes are falls.\n"
    )
    rows = []
    for setup, cell in cells:
        eta = f", η = {cell.settings['eta']:g}{' as in the paper' * cell.published}" if cell.method == "damper" else ""
        place = f"`{setup.protocol}` {cell.place}, {title(cell.method)}{eta}"
        those = replace(cell, records=tuple(r for r in cell.records if r.identity["seed"] in cell.constant))
        plain = setup.find(cell.backbone, cell.task, "plain")
        numbers = [number(those.mean(measure), measure) for measure in ("return", "length")]
        numbers.append(number(plain.mean("return"), "return") if plain else "–")
        rows.append([place, f"{len(cell.constant)} of {len(cell.seeds)}", *numbers])
    yield markdown_table(["cell", "constant agents", "their return", "their episodes' length", "plain's return"], rows)


# --- claims -------------------------------------------------------------------------------------------------------


def _verdicts(main: Sequence[Setup], timings: Sequence[Timing]) -> Iterator[str]:
    judged: dict[str, list[Verdict]] = {}
    for setup in main:
        judged[f"`{setup.protocol}`"] = verdicts(setup)
        judged[f"`{setup.protocol}`, η = {ONE_ETA:g}"] = verdicts(setup, ONE_ETA)
    yield "### The paper's claims\n"
    timed = time_verdicts(timings)
    yield (
        f"{_settled(judged)} {len(timed)} more claims are about time.\n\n"
        "*Leans*: the means agree with the claim, an interval includes zero. *Leans against*: a mean contradicts it, "
        "the interval still allows it. *Constant actions*: it compares smoothness, and most agents of one side hold "
        "one action. *Not enough data*: a comparison lacks five seeds, and none has failed. Each interval "
        f"has {percent(claim_level(), 1)} and is wider than those elsewhere on this page: were seeds spread normally, "
        "the claims of one line below that hold would do so together with 95 % confidence. Lopsided cells, and cells "
        "in which some seeds fail, have less ([by how much](statistics.md#verdicts)).\n"
    )
    yield markdown_table(["judged by", "verdicts"], [[name, _tally(own)] for name, own in judged.items()])
    yield from _decided(judged)
    yield from _undecided(next(iter(judged.values())))
    yield "Claims about time belong to the machines on which updates were timed:\n"
    yield markdown_table(
        ["claim", "verdict", "comparisons"], [[one.text, verdict_text(one), _parts(one)] for one in timed]
    )


def _settled(judged: Mapping[str, Sequence[Verdict]]) -> str:
    """How many claims have a verdict beyond the noise, for each way of judging: each is corrected alone."""
    parts = []
    for name, own in judged.items():
        counts = {
            "held": sum(verdict.verdict == HOLDS for verdict in own),
            "failed": sum(verdict.verdict == FAILS for verdict in own),
        }
        decided = " and ".join(f"{count} {word}" for word, count in counts.items() if count)
        parts.append(f"{name} {decided or 'none'}")
    claims = len(next(iter(judged.values())))
    return f"**Of {claims} claims about trained policies, decided beyond the noise so far: {'; '.join(parts)}.**"


def _decided(judged: Mapping[str, Sequence[Verdict]]) -> Iterator[str]:
    """The claims that some records decide, with the comparisons that decided the first of the verdicts."""
    rows = []
    for own in zip(*judged.values(), strict=True):
        first = next((verdict for verdict in own if verdict.verdict != OPEN), None)
        if first is not None:
            words = ["–" if verdict.verdict == OPEN else verdict_text(verdict) for verdict in own]
            rows.append([first.text, *words, _by(first)])
    if rows:
        yield "Claims with a verdict; the last column has the comparisons behind the first one of the row:\n"
        yield markdown_table(["claim", *judged, "comparisons"], rows)


def _by(verdict: Verdict) -> str:
    """The comparisons that decided a verdict, with their numbers."""
    texts = [check.text for check in verdict.checks if check.verdict == verdict.verdict != OPEN]
    return f"<small>{'<br>'.join(texts)}</small>" if texts else ""


def _parts(verdict: Verdict) -> str:
    """Every comparison of a claim with its word, the decisive ones first."""
    checks = sorted(verdict.checks, key=lambda check: check.verdict != verdict.verdict)
    return f"<small>{'<br>'.join(f'{check.verdict}: {check.text}' for check in checks)}</small>"


def _undecided(judged: Sequence[Verdict]) -> Iterator[str]:
    """The claims that wait for records, with what is known of them."""
    waiting = [f"- {verdict.text}{_so_far(verdict)}" for verdict in judged if verdict.verdict == OPEN]
    if waiting:
        yield "Waiting for records; [the tables](results/tables.md) have every comparison with its gap:\n"
        yield "\n".join(waiting) + "\n"


def claims_table(judged: Mapping[str, Sequence[Verdict]]) -> str:
    """Claims with their verdicts, one column per way of judging, and how many have each verdict."""
    claims = next(iter(judged.values()))
    rows = [[claim.text, *(verdict_text(own[i]) for own in judged.values())] for i, claim in enumerate(claims)]
    return markdown_table(["claim", *judged], [*rows, ["**together**", *map(_tally, judged.values())]])


def _tally(judged: Sequence[Verdict]) -> str:
    return _counts(verdict.verdict for verdict in judged)


def verdict_text(verdict: Verdict) -> str:
    """A verdict as the tables show it."""
    if verdict.verdict != OPEN:
        return f"**{verdict.verdict}**{_note(verdict)}"
    return OPEN + _so_far(verdict)


def _so_far(verdict: Verdict) -> str:
    known = _counts(check.verdict for check in verdict.known)
    return f" (so far, of {len(verdict.checks)} comparisons: {known}){_note(verdict)}" if known else ""


def _note(verdict: Verdict) -> str:
    return f". {verdict.note}" if verdict.note else ""


def _counts(words: Iterable[str]) -> str:
    """How many there are of each word."""
    found = list(words)
    return ", ".join(f"{found.count(word)} {word}" for word in VERDICTS if word in found)


def comparisons_list(judged: Sequence[Verdict]) -> str:
    """Every comparison that is known, claim by claim."""
    lines = []
    for verdict in judged:
        lines += [f"- {verdict.text}: {verdict_text(verdict)}"] if verdict.known else []
        lines += [f"    - {check.verdict}: {check.text}" for check in verdict.known]
    return "\n".join(lines) + "\n" if lines else ""


# --- tables -------------------------------------------------------------------------------------------------------


def _pairs(setup: Setup) -> str:
    table = comparison_table(setup, COMPARED) or "Nothing to compare yet.\n"
    said = f"{takeaway(setup)} Changes are of plain's mean, with 95 % intervals. Settings: `{setup.title}`.".strip()
    return f"### DAMPER beside plain, `{setup.protocol}`\n\n{said}\n\n{table}"


def _etas(main: Sequence[Setup]) -> Iterator[str]:
    """Return and smoothness over η, where a task's sweep is complete."""
    rows, ends = [], []
    for setup in main:
        for task in setup.tasks("td3"):
            swept = [setup.find("td3", task, "damper", eta=eta) for eta in ETAS]
            cells = [cell for cell in swept if cell is not None and len(cell.seeds) >= MIN_SEEDS]
            if len(cells) < len(ETAS):
                continue
            changes = (f"{MEASURES[measure]} {change_text(cells[0], cells[-1], measure)}" for measure in COMPARED)
            ends.append(f"`{setup.protocol}` {cells[0].place}: {', '.join(changes)}")
            for measure in COMPARED:
                place = f"`{setup.protocol}` {cells[0].place}, {MEASURES[measure]}"
                seeds = [cell.means(measure) for cell in cells]
                rows.append([place, *(_mean_and_median(own, measure) for own in seeds)])
    if rows:
        yield f"### What η did\n\nFrom η = {ETAS[0]:g} to {ETAS[-1]:g}, {'; '.join(ends)}.\n"
        yield "Means of the seeds with their 95 % intervals, and medians:\n"
        yield markdown_table(["cell", *(f"η = {eta:g}" for eta in ETAS)], rows)


def _mean_and_median(seeds: Array, measure: str) -> str:
    """A cell's mean with its interval, and its median, since one seed can carry a mean."""
    median = number(float(np.median(seeds)), measure, float(seeds.mean()))
    return f"{with_interval(seeds.mean(), mean_interval(seeds), measure)}<br><small>median {median}</small>"


def _protocols(main: Sequence[Setup]) -> Iterator[str]:
    """What the two published settings make of the same method."""
    if len(main) < 2:
        return
    one, other = main[:2]
    gaps: list[Gap] = []
    for cell in _plain_and_damper(one):
        twin = other.find(cell.backbone, cell.task, cell.method)
        gaps += _gaps(one, cell, twin) if twin else []
    if gaps:
        yield f"### Where the protocols disagree\n\nThe same method under both published settings. {_apart(gaps)}\n"
        header = ["cell", f"`{one.protocol}`", f"`{other.protocol}`", "difference"]
        rows = (gap.row for gap in gaps)
        yield markdown_table(header, [[place.removeprefix(f"`{one.protocol}` "), *rest] for place, *rest in rows])


def _precision(found: Sequence[Setup]) -> Iterator[str]:
    """Setups that differ in TF32 alone."""
    gaps: list[Gap] = []
    for a in found:
        for b in found:
            same = (a.protocol, a.deviations, a.envs, a.episodes) == (b.protocol, b.deviations, b.envs, b.episodes)
            if not same or {**a.numerics, "tf32": False} != b.numerics or not a.numerics["tf32"]:
                continue
            for cell in b.cells:
                other = a.find(cell.backbone, cell.task, cell.method) if cell.published else None
                gaps += _gaps(a, other, cell) if other else []
    if gaps:
        yield f"### TF32 beside float32\n\nThe same agents trained both ways. {_apart(gaps)}\n"
        yield markdown_table(["cell", "TF32", "float32", "difference"], [gap.row for gap in gaps])


def _units(found: Sequence[Setup]) -> Iterator[str]:
    """Cells that differ in the units of the temporal loss alone."""
    gaps: list[Gap] = []
    for setup in found:
        for cell in setup.cells:
            changed = cell.settings.get("units") == "environment"
            other = setup.find(cell.backbone, cell.task, cell.method) if changed else None
            gaps += _gaps(setup, cell, other) if other else []
    if gaps:
        yield (
            "### Units of the temporal loss\n\nIts actions in the environment's units, and in the policy's, [−1, 1], "
            f"as everywhere else here ([why it matters](methods/temporal.md#units)). {_apart(gaps)}\n"
        )
        yield markdown_table(["cell", "environment's", "policy's", "difference"], [gap.row for gap in gaps])


class Gap(NamedTuple):
    """Two cells' means and medians of one measure, the difference of the means, whether its interval excludes zero."""

    place: str
    one: str
    other: str
    difference: str
    apart: bool

    @property
    def row(self) -> list[str]:
        """For a table, in bold where the interval excludes zero."""
        return [self.place, self.one, self.other, f"**{self.difference}**" if self.apart else self.difference]


def _gaps(setup: Setup, one: Cell, other: Cell) -> Iterator[Gap]:
    """A gap per measure."""
    for measure in COMPARED:
        gap, interval = difference(one.means(measure), other.means(measure))
        place = f"{_place(setup, one)}, {MEASURES[measure]}"
        text = span(gap, interval) if interval else number(gap, measure)
        apart = interval is not None and interval.excludes_zero
        yield Gap(place, _with_median(one, measure), _with_median(other, measure), text, apart)


def _with_median(cell: Cell, measure: str) -> str:
    mean, median = cell.mean(measure), float(np.median(cell.means(measure)))
    return f"{number(mean, measure)}<br><small>median {number(median, measure, mean)}</small>"


def _apart(gaps: Sequence[Gap]) -> str:
    """The result of a table of differences, in a sentence."""
    apart = sum(gap.apart for gap in gaps)
    where = f"{apart} of {len(gaps)} rows, in bold" if apart else f"none of {len(gaps)} rows"
    return f"The 95 % interval of the difference excludes zero in {where}; by chance 1 in 20 would."


def _plain_and_damper(setup: Setup) -> list[Cell]:
    """The cells that the page comments on: both methods at their published settings."""
    return [cell for cell in setup.cells if cell.published and cell.method in ("plain", "damper")]


def _place(setup: Setup, cell: Cell) -> str:
    """Protocol, task, backbone and, unless it is plain, the method."""
    method = "" if cell.method == "plain" else f" {title(cell.method, cell.backbone)}"
    return f"`{setup.protocol}` {cell.place}{method}"


def _starts(main: Sequence[Setup]) -> str:
    """How far means are from the paper's, beside what other seeds and other start states could do to them."""
    rows, far, without = [], 0, 0
    for setup in main:
        for cell in _plain_and_damper(setup):
            theirs = printed(cell.backbone, cell.method, cell.task, "return")
            scores, seeds, mean = cell.scores("return"), cell.means("return"), cell.mean("return")
            starts = starts_error(scores)
            if theirs is None or starts is None or len(seeds) < 2:
                continue
            own = [(starts**2, scores.shape[1] - 1), (squared_error(seeds), len(seeds) - 1)]
            errors = own + ([(theirs.std**2 / PAPER_SEEDS, PAPER_SEEDS - 1)] if theirs.std is not None else [])
            interval = welch_interval(mean - theirs.mean, errors)
            apart = interval.excludes_zero
            far += apart
            without += welch_interval(mean - theirs.mean, own).excludes_zero
            distance = "{} [{}, {}]".format(*(number(v, "return", mean) for v in (mean - theirs.mean, *interval)))
            sizes = [f"±{number(variance**0.5, 'return', mean)}" for variance, _ in errors]
            means = [number(value, "return", mean) for value in (mean, theirs.mean)]
            row = [_place(setup, cell), *means, f"**{distance}**" if apart else distance, *sizes]
            rows.append([*row, "–"] if theirs.std is None else row)
    return (
        f"### Beside the paper's returns\n\nThe 95 % interval of the distance (Student's t) excludes zero for {far} of "
        f"{len(rows)} means, in bold; for {without} if the paper's means had no error. By chance 1 in 20 would, and "
        "the others are not shown to agree. The standard errors: the choice of ten starts, that of the seeds, and the "
        "paper's own, which is its printed deviation over √5, as of the five seeds that its caption names. The numbers "
        "look pooled over episodes; then that is too large. All other intervals on this page are conditional on the "
        "ten fixed starts, which every policy here sees.\n\n"
        + markdown_table(
            ["cell", "return", "the paper's", "distance", "error: starts", "error: seeds", "error: the paper's"], rows
        )
    )


def _end_of_training(main: Sequence[Setup]) -> str:
    """One policy per seed is evaluated, the last one; whether it is a fair sample shows in the training before it."""
    rows = []
    for setup in main:
        for cell in _plain_and_damper(setup):
            late = [late_return(record.curve) for record in cell.records]
            if None in late:
                continue
            trained, evaluated = np.array(late, float), cell.means("return")
            scale = float(np.abs(evaluated).max())
            seeds = ("; ".join(number(float(v), "return", scale) for v in values) for values in (evaluated, trained))
            means = (number(float(values.mean()), "return", scale) for values in (evaluated, trained))
            rows.append([_place(setup, cell), *(f"{m} ({own})" for m, own in zip(means, seeds, strict=True))])
    return (
        "### Last policies, and the end of training\n\nThe evaluated policy is a seed's last one. Beside it: the mean "
        "return of the training episodes in the last tenth of the steps, with exploration, of many policies. Where one "
        "seed falls far below its own training, its last policy is no fair sample of it; where both are low, it "
        "learned little. Seeds in brackets.\n\n"
        + markdown_table(["cell", "evaluated: mean (seeds)", "end of training: mean (seeds)"], rows)
    )


def late_return(curve: Mapping[str, Sequence[float | None]]) -> float | None:
    """The mean training return in the last tenth of the steps; None if nothing ended there."""
    steps, returns = curve.get("step", ()), curve.get("return", ())
    known = [r for s, r in zip(steps, returns, strict=False) if r is not None and s and s > 0.9 * (steps[-1] or 0)]
    return sum(known) / len(known) if known else None


def _code(main: Sequence[Setup]) -> str:
    lines = [
        f"- `{setup.protocol}`, {cells[0].place}: {code(cells)}"
        for setup in main
        for backbone in BACKBONES
        for task in setup.tasks(backbone)
        if (cells := [cell for cell in setup.cells if (cell.backbone, cell.task) == (backbone, task)])
    ]
    return "### Code behind the tables\n\n" + "\n".join(lines) + "\n"
