"""What the results page says about the records, written from them, so that it cannot drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from damper.experiments.paper import title
from damper.experiments.paper_experiments import ABLATION_TASKS, BACKBONES, ETAS, ONE_ETA, TABLE_METHODS
from damper.experiments.timings import Timing
from damper.metrics import CONSTANT_CHANGE
from damper.protocols import SHORT_TASKS, protocol_settings
from damper.report.claims.comparisons import MIN_SEEDS
from damper.report.pages.claims import claims_section, judge_all, settled
from damper.report.pages.gaps import protocol_gaps
from damper.report.pages.headline import (
    PERCENTAGES,
    change_text,
    comparison_table,
    constant_at_one,
    has_interval,
    means_of,
    pairs,
    sign_of_change,
    takeaway,
)
from damper.report.pages.over_tasks import beside_the_others, return_over_tasks
from damper.report.pages.returns import FAR_BELOW, below_paper
from damper.report.statistics.cells import COMPARED, MEASURES, Cell, Setup, main_setups
from damper.report.statistics.estimates import mean_interval
from damper.report.statistics.numbers import number, percent, with_interval
from damper.report.tables.markup import markdown_table
from damper.tasks import PAPER_TASKS
from damper.terminal import counted

FAR_SHORTER = 0.1  # of plain's episodes' length
LENGTH_KEPT = 1 - FAR_SHORTER
MOST_NAMED = 5  # places in one sentence
FALLS = ("Hopper", "Walker")  # where an episode that ends early is a fall


def findings(found: Sequence[Setup], timings: Sequence[Timing]) -> str:
    """Everything with a number in it that the results page says: the result first, then what it rests on."""
    main = main_setups(found)
    if not main:
        return "No records yet.\n"
    summary = [
        sentence
        for part in (_smoother, _beside, _ends_of_eta, _without_projection, _apart, _below, _claims)
        for sentence in part(main)
    ]
    parts = ["\n".join(f"{i}. {sentence}" for i, sentence in enumerate(summary, 1)) + "\n", _extent(found)]
    parts += [pairs_section(main[0]), *_constant(found), *claims_section(main, timings), *_etas(main)]
    return "\n".join([*parts, *_protocols(main)])


# --- the findings, a sentence or two each -------------------------------------------------------------------------


def _smoother(main: Sequence[Setup]) -> Iterator[str]:
    """How many pairs DAMPER makes smoother, what that does to return, and the pairs that are exceptions."""
    setup = main[0]
    if said := takeaway(setup):
        parts = [said, return_over_tasks(setup)]
        yield f"**DAMPER beside plain, `{setup.protocol}`.** {' '.join(filter(None, parts))}"
    if exceptions := _exceptions(setup):
        yield f"**Exceptions.** {exceptions}"


def _exceptions(setup: Setup) -> str:
    """The pairs that are not smoother, those that earn less, and those whose episodes are shorter."""
    shorter = f"Shorter episodes, beyond the noise or by more than {percent(FAR_SHORTER)}"
    disagree = "Another answer by sm"
    words = ("Not smoother beyond the noise", disagree, "A lower return", shorter)
    places: dict[str, list[str]] = {word: [] for word in words}
    for plain, ours in pairs(setup):
        signs = {measure: sign_of_change(plain, ours, measure)[0] for measure in ("mean_change", "return")}
        if signs["mean_change"] != "lower" and has_interval(plain, ours, "mean_change"):
            places["Not smoother beyond the noise"].append(_with_change(plain, ours, "mean_change"))
        if sign_of_change(plain, ours, "smoothness")[0] != signs["mean_change"]:
            places[disagree].append(_with_change(plain, ours, "smoothness"))
        if signs["return"] == "lower":
            places["A lower return"].append(_with_change(plain, ours, "return"))
        much = ours.mean("length") < LENGTH_KEPT * plain.mean("length")
        if much or sign_of_change(plain, ours, "length")[0] == "lower":
            places[shorter].append(_with_change(plain, ours, "length", _falls(plain, ours)))
    return " ".join(f"{word}: {'; '.join(where)}." for word, where in places.items() if where)


def _beside(main: Sequence[Setup]) -> Iterator[str]:
    """DAMPER and the methods it is compared with."""
    if said := beside_the_others(main[0]):
        yield said


def _with_change(plain: Cell, ours: Cell, measure: str, more: str = "") -> str:
    return f"{ours.place} ({change_text(plain, ours, measure)}{more})"


def _falls(plain: Cell, ours: Cell) -> str:
    """How many episodes end in a fall, on a task where nothing else ends one early."""
    if ours.task not in FALLS:
        return ""
    ends = [[end for record in cell.records for end in record.episodes["terminated"]] for cell in (plain, ours)]
    before, after = (f"{sum(own)} of {len(own)}" for own in ends)
    return f"; falls: {before}, then {after}"


def _ends_of_eta(main: Sequence[Setup]) -> Iterator[str]:
    """What both ends of η do, and where η = 1 ends in one action."""
    setup = main[0]
    rows = [row for row in ends_of_eta(setup) if row[1].task == "Hopper" and row[1].backbone == "td3"]
    told = [
        f"On {zero.place} η = 0 changes mean |Δa| by {change_text(plain, zero, 'mean_change')} and return by "
        f"{change_text(plain, zero, 'return')} of plain's, η = {ONE_ETA:g} by "
        f"{change_text(plain, one, 'mean_change')} and {change_text(plain, one, 'return')}."
        for plain, zero, one in rows
    ]
    if counts := takeaway(setup, ONE_ETA):
        told.append(f"With η = {ONE_ETA:g} everywhere: {counts[:1].lower()}{counts[1:]}")
    if still := constant_at_one(setup):
        told.append(still)
    if told:
        yield f"**η.** {' '.join(told)}"


def _without_projection(main: Sequence[Setup]) -> Iterator[str]:
    """What is left of a policy where conflicts are not projected away."""
    setup, told, ended = main[0], [], 0
    for task in ABLATION_TASKS:
        ours, without = setup.find("td3", task, "damper"), setup.find("td3", task, "unconditional-sum")
        if ours is not None and without is not None:
            own, theirs = (number(cell.mean("return"), "return") for cell in (without, ours))
            still = f"{len(without.constant) or 'none'} of {len(without.seeds)} agents"
            ended += len(without.constant)
            told.append(f"{still} on {ours.place} (mean return {own}, DAMPER's {theirs})")
    if told:
        words = "a policy can end" if ended else "no policy ended"
        yield f"**Without projection** (unconditional sum) {words} in one constant action: {'; '.join(told)}."


def _apart(main: Sequence[Setup]) -> Iterator[str]:
    """How often the two published settings disagree."""
    if gaps := protocol_gaps(main):
        returns = [
            f"{gap.place} ({' and '.join(number(cell.mean('return'), 'return') for cell in (gap.one, gap.other))})"
            for gap in gaps
            if gap.apart and gap.measure == "return"
        ]
        names = " and ".join(f"`{setup.protocol}`" for setup in main[:2])
        more = f"; and {len(returns) - MOST_NAMED} more" if len(returns) > MOST_NAMED else ""
        where = f" In return: {'; '.join(returns[:MOST_NAMED])}{more}." if returns else ""
        yield (
            f"**Protocols.** Under {names} the same method differs beyond the noise in "
            f"{sum(gap.apart for gap in gaps) or 'none'} of {counted(len(gaps), 'comparison')}.{where}"
        )


def _below(main: Sequence[Setup]) -> Iterator[str]:
    """Where DAMPER earns less than in the paper."""
    where = [
        f"{cell.place} ({number(cell.mean('return'), 'return')}, the paper {number(theirs.mean, 'return')})"
        for cell, theirs in below_paper(main[0])
    ]
    if where:
        yield (
            f"**Below the paper.** DAMPER's mean return is more than {percent(FAR_BELOW)} below the paper's on "
            f"{'; '.join(where)} ([what can be the cause](#returns-below-the-papers))."
        )


def _claims(main: Sequence[Setup]) -> Iterator[str]:
    yield f"**The paper's claims.** {settled(judge_all(main))}"


def _extent(found: Sequence[Setup]) -> str:
    """How much of the paper's main tables is there."""
    full = {}
    for setup in main_setups(found):
        cells = [cell for cell in setup.cells if cell.published and cell.method in TABLE_METHODS]
        full[setup.protocol] = sum(len(cell.seeds) >= MIN_SEEDS for cell in cells)
    whole = len(PAPER_TASKS) * 2 * len(TABLE_METHODS)
    counts = {protocol: f"all {whole}" if count == whole else count or "none" for protocol, count in full.items()}
    stand = " and ".join(f"{count} under `{protocol}`" for protocol, count in counts.items()) or "none"
    agents = sum(setup.agents for setup in found)
    parts = [f"On record {'is' if agents == 1 else 'are'} {counted(agents, 'agent')}."]
    parts.append(f"Of the {whole} cells of the paper's two main tables {stand} have five seeds")
    parts.append("([what is missing](reproduce.md#what-is-missing)).")
    frozen = sum(len(cell.frozen) for setup in found for cell in setup.cells)
    parts.append(f"{frozen or 'None'} of the agents diverged.")
    return " ".join(parts) + "\n"


# --- sections -----------------------------------------------------------------------------------------------------


def pairs_section(setup: Setup, said: str = "") -> str:
    """DAMPER beside plain, all numbers, and before them what they say."""
    table = comparison_table(setup, (*COMPARED, "length")) or "Nothing to compare yet.\n"
    how = (
        f"{said} {means_of(setup)} Changes are of plain's mean, with 95 % intervals, not corrected over the "
        f"comparisons; bold ones exclude zero. {PERCENTAGES} The first row of a task has the "
        f"paper's η. Settings: `{setup.title}`."
    ).strip()
    return f"## DAMPER beside plain, `{setup.protocol}`\n\n{how}\n\n{table}"


def _constant(found: Sequence[Setup]) -> Iterator[str]:
    """Cells with agents that ended at one and the same action."""
    cells = [(setup, cell) for setup in found for cell in setup.cells if cell.constant]
    if not cells:
        return
    agents = sum(len(cell.constant) for _, cell in cells)
    yield "## Policies with one constant action\n"
    yield (
        f"**{counted(agents, 'agent holds', 'agents hold')} one action throughout an episode** (mean |Δa| below "
        f"{CONSTANT_CHANGE:g} in each of their evaluation episodes). Their sm is the lowest there can be and says "
        "nothing about smooth control, so it is [not counted](statistics.md#constant-actions) as smooth where they are "
        f"most of a cell. On {' and '.join(FALLS)} a short episode is a fall.\n"
    )
    rows = []
    for setup, cell in cells:
        eta = f", η = {cell.settings['eta']:g}{' as in the paper' * cell.published}" if cell.method == "damper" else ""
        words = f"`{setup.protocol}` {cell.place}, {title(cell.method)}{eta}"
        those = replace(cell, records=tuple(r for r in cell.records if r.identity["seed"] in cell.constant))
        plain = setup.find(cell.backbone, cell.task, "plain")
        numbers = [number(those.mean(measure), measure) for measure in ("return", "length")]
        numbers.append(number(plain.mean("return"), "return") if plain else "–")
        rows.append([words, f"{len(cell.constant)} of {len(cell.seeds)}", *numbers])
    yield markdown_table(["cell", "constant agents", "their return", "their episodes' length", "plain's return"], rows)


def _etas(main: Sequence[Setup]) -> Iterator[str]:
    """Return and smoothness over η, where a task's sweep is complete."""
    rows, ends = [], []
    for setup in main:
        for cells in swept_etas(setup):
            changes = (f"{MEASURES[measure]} {change_text(cells[0], cells[-1], measure)}" for measure in COMPARED)
            ends.append(f"`{setup.protocol}` {cells[0].place}: {', '.join(changes)}")
            for measure in COMPARED:
                means = (_with_interval(cell, measure) for cell in cells)
                rows.append([f"`{setup.protocol}` {cells[0].place}, {MEASURES[measure]}", *means])
    if rows:
        yield f"## What η did\n\nFrom η = {ETAS[0]:g} to {ETAS[-1]:g}, {'; '.join(ends)}.\n"
        yield "Means of the seeds with their 95 % intervals ([medians](results/details.md#medians-of-the-sweep)):\n"
        yield markdown_table(["cell", *(f"η = {eta:g}" for eta in ETAS)], rows)


def _with_interval(cell: Cell, measure: str) -> str:
    """A cell's mean with its interval, and a note where agents hold one action."""
    told = with_interval(cell.mean(measure), mean_interval(cell.means(measure)), measure)
    return told + (f"<br><small>{cell.constant_note}</small>" if cell.constant else "")


def swept_etas(setup: Setup) -> Iterator[list[Cell]]:
    """The cells of each task whose sweep over η is complete, in the order of ``ETAS``."""
    for task in setup.tasks("td3"):
        swept = [setup.find("td3", task, "damper", eta=eta) for eta in ETAS]
        cells = [cell for cell in swept if cell is not None and len(cell.seeds) >= MIN_SEEDS]
        if len(cells) == len(ETAS):
            yield cells


def _protocols(main: Sequence[Setup]) -> Iterator[str]:
    """The settings in which the protocols differ, and the rows whose interval excludes zero."""
    gaps = protocol_gaps(main)
    if not gaps:
        return
    one, other = (str(setup.protocol) for setup in main[:2])
    apart = [gap for gap in gaps if gap.apart]
    yield "## Where the protocols disagree\n"
    yield (
        f"They train with other settings, `{one}` first: {_settings_apart(one, other)}. No record changes one of them "
        "alone, so which of them does it is open.\n"
    )
    yield (
        f"In {len(apart) or 'none'} of {len(gaps)} [comparisons of the same method]"
        "(results/details.md#the-same-method-under-both-protocols) the 95 % interval of the difference excludes zero; "
        f"by chance it would in 1 of 20{':' if apart else '.'}\n"
    )
    if not apart:
        return
    yield markdown_table(["cell", f"`{one}`", f"`{other}`", "difference"], [gap.row for gap in apart])


def _settings_apart(one: str, other: str) -> str:
    """What two protocols set differently, by backbone; what only some tasks have, apart."""
    told = []
    for backbone in BACKBONES:
        everywhere, short = (_differing(one, other, backbone, task) for task in (None, SHORT_TASKS[0]))
        words = ", ".join(f"`{name}` {values}" for name, values in everywhere.items())
        own = ", ".join(f"`{name}` {values}" for name, values in short.items() if name not in everywhere)
        told.append(f"{backbone.upper()}: {words}" + (f"; on {' and '.join(SHORT_TASKS)} also {own}" if own else ""))
    return "; ".join(told)


def _differing(one: str, other: str, backbone: str, task: str | None) -> dict[str, str]:
    """Both values of every setting that differs on a task of the paper."""
    ours, theirs = (protocol_settings(name, backbone, task) for name in (one, other))
    return {
        name: f"{_value(value)} and {_value(theirs[name])}" for name, value in ours.items() if theirs[name] != value
    }


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value}"


# --- choosing η, for the quick start ------------------------------------------------------------------------------


def ends_of_eta(setup: Setup) -> Iterator[tuple[Cell, Cell, Cell]]:
    """Plain, DAMPER with η = 0 and with η = 1, where all three are on record."""
    for backbone in BACKBONES:
        for task in setup.tasks(backbone):
            plain = setup.find(backbone, task, "plain")
            zero, one = (setup.find(backbone, task, "damper", eta=eta) for eta in (0.0, ONE_ETA))
            if plain and zero and one:
                yield plain, zero, one


def choosing_eta(found: Sequence[Setup]) -> str:
    """What both ends of η did to plain's action changes and returns."""
    rows: list[list[str]] = []
    for setup in main_setups(found)[:1]:
        for plain, zero, one in ends_of_eta(setup):
            changes = (
                change_text(plain, cell, measure) for measure in ("mean_change", "return") for cell in (zero, one)
            )
            rows.append([zero.place, *changes])
        header = [f"{MEASURES[m]}, η = {eta:g}" for m in ("mean_change", "return") for eta in (0, ONE_ETA)]
        still = constant_at_one(setup)
        return (
            f"Changes of plain's means with 95 % intervals, `{setup.protocol}`, where both ends are on record:\n\n"
            + markdown_table(["task", *header], rows)
            + (f"\n{still}\n" if still else "")
        )
    return "No records yet.\n"
