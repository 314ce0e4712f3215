"""What the results page says about the records, written from them, so that it cannot drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from damper.intervals import LOWER, percent
from damper.metrics import CONSTANT_CHANGE
from damper.protocols import SHORT_TASKS, protocol_settings
from damper.tables import markdown_table
from damper.tasks import PAPER_TASKS
from damper.terminal import counted, joined
from paper.claims.comparisons import MIN_SEEDS
from paper.experiments.catalogue import (
    ABLATION_TASKS,
    BACKBONES,
    ETAS,
    ONE_ETA,
    TABLE_METHODS,
)
from paper.experiments.printed import title
from paper.experiments.timings import Timing
from paper.pages.below_paper import FAR_BELOW, below_paper, beside_paper
from paper.pages.claims import claims_section, judge_all, settled
from paper.pages.gaps import protocol_gaps
from paper.pages.headline import (
    PERCENTAGES,
    comparison_table,
    constant_at_one,
    counts_of_signs,
    means_of,
    pairs,
)
from paper.pages.over_tasks import beside_the_others, return_over_tasks
from paper.statistics.cells import COMPARED, MEASURES, Cell, Setup, main_setups
from paper.statistics.change import change
from paper.statistics.numbers import number

FAR_SHORTER = 0.1  # of plain's episodes' length
MOST_NAMED = 3  # places in one sentence
ENDS_EARLY = (
    "Ant",
    "Hopper",
    "Walker",
)  # where an episode ends early only as the robot falls or is otherwise unhealthy
PROTOCOL_GAPS = "results/details.md#the-same-method-under-both-protocols"


def findings(found: Sequence[Setup], timings: Sequence[Timing]) -> str:
    """Everything with a number in it that the results page says: the result first, then what it rests on."""
    main = main_setups(found)
    if not main:
        return "No records yet.\n"
    first = main[0]
    summary = [
        _smoother(first),
        _less_smooth(first),
        _costs(first),
        beside_the_others(first),
        _one_eta(first),
        _without_projection(first),
        _apart(main),
        _below(first),
        f"**The paper's claims.** {settled(judge_all(main))}",
    ]
    numbered = "\n".join(f"{i}. {told}" for i, told in enumerate(filter(None, summary), 1))
    parts = [
        f"{numbered}\n",
        _extent(found),
        pairs_section(first, "results/tables.md"),
        *_constant(found),
    ]
    return "\n".join([*parts, *claims_section(main, timings), *_etas(main), *_protocols(main)])


# --- the findings, a sentence or two each; empty where there is nothing to tell -----------------------------------


def _smoother(setup: Setup) -> str:
    """How many pairs DAMPER makes smoother, and what that does to return."""
    counts, name = counts_of_signs(setup), f"**DAMPER against plain, `{setup.protocol}`.**"
    return f"{name} {counts} {return_over_tasks(setup)}".strip() if counts else ""


def _less_smooth(setup: Setup) -> str:
    """The pairs that are not smoother, and those where the two measures of it disagree."""
    less, disagree = [], []
    for plain, ours in pairs(setup):
        moved, smooth = (change(plain, ours, measure) for measure in ("mean_change", "sm"))
        if moved.sign != LOWER and (moved.interval or moved.notes):
            less.append(f"{ours.place} ({moved})")
        if moved.sign != smooth.sign:
            disagree.append(f"{ours.place} ({smooth})")
    told = _listed(
        setup, {"A lower mean |Δa| is not shown": less, "`sm` gives another verdict": disagree}
    )
    return f"**Exceptions.** {told}" if told else ""


def _costs(setup: Setup) -> str:
    """The pairs that earn less, and those whose episodes are shorter where that is a failure."""
    lower, shorter = [], []
    for plain, ours in pairs(setup):
        if (earned := change(plain, ours, "return")).sign == LOWER:
            lower.append(f"{ours.place} ({earned})")
        if ours.task in ENDS_EARLY:
            lasted, far = change(plain, ours, "length"), (1 - FAR_SHORTER) * plain.mean("length")
            if lasted.sign == LOWER or ours.mean("length") < far:
                early = (
                    f"ended early: {_ended_early(plain)} with plain, {_ended_early(ours)} with "
                    "DAMPER"
                )
                shorter.append(f"{ours.place} ({lasted}; {early})")
    episodes = (
        f"Episodes are shorter, beyond the noise or by more than {percent(FAR_SHORTER)} in "
        "the mean,"
    )
    told = _listed(setup, {"The return is lower": lower, episodes: shorter})
    return f"**Costs.** {told}" if told else ""


def _listed(setup: Setup, places: Mapping[str, Sequence[str]]) -> str:
    """A sentence for each list that has something; of a long one the table below has the places."""
    table = f"#damper-against-plain-{setup.protocol}"
    return " ".join(
        f"{words} for {joined(own) if len(own) <= MOST_NAMED else f'[{len(own)} pairs]({table})'}."
        for words, own in places.items()
        if own
    )


def _ended_early(cell: Cell) -> str:
    ends = [end for record in cell.records for end in record.episodes["terminated"]]
    return f"{sum(ends)} of {len(ends)}"


def _one_eta(setup: Setup) -> str:
    """What is left where η is not chosen, and how often it ends in one action."""
    counts, still = (
        counts_of_signs(setup, ONE_ETA),
        constant_at_one(setup, "#policies-with-one-constant-action"),
    )
    told = [f"With η = {ONE_ETA:g} everywhere, {counts}" if counts else "", still]
    return f"**One η.** {' '.join(filter(None, told))}" if any(told) else ""


def _without_projection(setup: Setup) -> str:
    """What is left of a policy where conflicts are not projected away."""
    told, ended = [], 0
    for task in ABLATION_TASKS:
        ours, without = (
            setup.find("td3", task, "damper"),
            setup.find("td3", task, "unconditional-sum"),
        )
        if ours is not None and without is not None:
            own, theirs = (number(cell.mean("return"), "return") for cell in (without, ours))
            still = f"{len(without.constant) or 'none'} of {len(without.seeds)} agents"
            ended += len(without.constant)
            told.append(f"{still} on {ours.place} (mean return {own}, with DAMPER {theirs})")
    words = "a policy can end" if ended else "no policy ended"
    where = f"{words} in one constant action: {'; '.join(told)}."
    return f"**Without projection** (the unconditional sum), {where}" if told else ""


def _apart(main: Sequence[Setup]) -> str:
    """How often the two published settings disagree."""
    gaps = protocol_gaps(main)
    if not gaps:
        return ""
    returns = [
        f"{gap.name} "
        f"({' and '.join(number(cell.mean('return'), 'return') for cell in (gap.one, gap.other))})"
        for gap in gaps
        if gap.apart and gap.measure == "return"
    ]
    names = joined([f"`{setup.protocol}`" for setup in main[:2]])
    told = (
        f"**Protocols.** Between {names} the same method differs beyond the noise in "
        f"{sum(gap.apart for gap in gaps) or 'none'} of {counted(len(gaps), 'comparison')}."
    )
    if not returns:
        return told
    few = (
        joined(returns)
        if len(returns) <= MOST_NAMED
        else f"[{len(returns)} of them]({PROTOCOL_GAPS})"
    )
    return f"{told} The return differs for {few}."


def _below(setup: Setup) -> str:
    """How often DAMPER earns less than in the paper."""
    below, every = (sum(1 for _ in own(setup)) for own in (below_paper, beside_paper))
    if not below:
        return ""
    return (
        f"**Below the paper.** DAMPER's mean return is more than {percent(FAR_BELOW)} below the "
        f"paper's in {below} of "
        f"{counted(every, 'task–backbone pair')} ([which, and possible "
        "causes](#returns-below-the-papers))."
    )


def _extent(found: Sequence[Setup]) -> str:
    """How much of the paper's main tables is there."""
    full = {}
    for setup in main_setups(found):
        cells = [cell for cell in setup.published if cell.method in TABLE_METHODS]
        full[setup.protocol] = sum(len(cell.seeds) >= MIN_SEEDS for cell in cells)
    whole = len(PAPER_TASKS) * 2 * len(TABLE_METHODS)
    counts = {
        protocol: f"all {whole}" if count == whole else count or "none"
        for protocol, count in full.items()
    }
    stand = joined([f"{count} under `{protocol}`" for protocol, count in counts.items()])
    agents = counted(sum(setup.agents for setup in found), "agent is", "agents are")
    frozen = sum(len(cell.frozen) for setup in found for cell in setup.cells)
    return (
        f"{agents} on record; {frozen or 'none'} diverged. Of the {whole} cells (one method, task "
        "and backbone) of the "
        f"paper's two main tables, {stand} have five seeds ([what is missing](reproduce.md#what-is-missing)).\n"
    )


# --- sections -----------------------------------------------------------------------------------------------------


def pairs_section(setup: Setup, tables: str, said: str = "") -> str:
    """DAMPER against plain, all numbers, and before them what they say; ``tables``: where the medians are."""
    table, heading = (
        comparison_table(setup, (*COMPARED, "length")),
        f"## DAMPER against plain, `{setup.protocol}`",
    )
    if not table:
        return f"{heading}\n\nNothing to compare yet.\n"
    how = (
        f"{said} {means_of(setup)} Below them: the change with its 95 % interval, bold where that "
        "excludes zero (not "
        "corrected for the number of comparisons), and the paper's means where it prints them "
        f"([medians and every seed]({tables})). {PERCENTAGES} Each task's first row has the "
        "paper's η. "
        f"Settings: `{setup.title}`."
    )
    return f"{heading}\n\n{how.strip()}\n\n{table}"


def _constant(found: Sequence[Setup]) -> Iterator[str]:
    """Cells with agents that ended at one and the same action."""
    cells = [(setup, cell) for setup in found for cell in setup.cells if cell.constant]
    if not cells:
        return
    agents = sum(len(cell.constant) for _, cell in cells)
    yield "## Policies with one constant action\n"
    yield (
        f"**{counted(agents, 'agent holds', 'agents hold')} one action throughout every evaluation "
        "episode** (mean "
        f"|Δa| below {CONSTANT_CHANGE:g} in each). Nothing has a lower `sm`, but this is not "
        "smooth control: where "
        "most agents of a cell do so, its smoothness is [not "
        "counted](statistics.md#constant-actions). On "
        f"{joined(ENDS_EARLY)} a short episode is a failure: the robot fell or was unhealthy.\n"
    )
    rows = []
    for setup, cell in cells:
        eta = (
            f", η = {cell.settings['eta']:g}{' as in the paper' * cell.published}"
            if cell.method == "damper"
            else ""
        )
        words = f"`{setup.protocol}` {cell.place}, {title(cell.method)}{eta}"
        plain = setup.find(cell.backbone, cell.task, "plain")
        numbers = [
            number(cell.only(cell.constant).mean(measure), measure)
            for measure in ("return", "length")
        ]
        numbers.append(number(plain.mean("return"), "return") if plain else "–")
        rows.append([words, f"{len(cell.constant)} of {len(cell.seeds)}", *numbers])
    yield markdown_table(
        ["cell", "constant agents", "their return", "their episode length", "plain's return"], rows
    )


def _etas(main: Sequence[Setup]) -> Iterator[str]:
    """What the whole range of η changes, where a task's sweep is complete."""
    rows = [
        [
            f"`{setup.protocol}` {cells[0].place}",
            *(str(change(cells[0], cells[-1], measure)) for measure in COMPARED),
        ]
        for setup in main
        for cells in swept_etas(setup)
    ]
    if rows:
        yield (
            f"## What η did\n\nChange from η = {ETAS[0]:g} to η = {ETAS[-1]:g} with its 95 % interval, where the "
            "sweep is complete ([every η](results/details.md#the-sweep-over-eta)):\n"
        )
        yield markdown_table(["cell", *(MEASURES[measure] for measure in COMPARED)], rows)


def swept_etas(setup: Setup) -> Iterator[list[Cell]]:
    """The cells of each task whose sweep over η is complete, in the order of ``ETAS``."""
    for task in setup.tasks("td3"):
        cells = [cell for cell in setup.etas(task).values() if len(cell.seeds) >= MIN_SEEDS]
        if len(cells) == len(ETAS):
            yield cells


def _protocols(main: Sequence[Setup]) -> Iterator[str]:
    """How often the protocols disagree, and the settings in which they differ."""
    if gaps := protocol_gaps(main):
        one, other = (str(setup.protocol) for setup in main[:2])
        yield (
            f"## Where the protocols disagree\n\nIn {sum(gap.apart for gap in gaps) or 'none'} of {len(gaps)} "
            f"[comparisons of the same method]({PROTOCOL_GAPS}) the 95 % interval of the "
            "difference excludes zero; by "
            "chance it would in 1 of 20. The protocols differ in the settings below. No record "
            "changes one setting "
            "alone, so it is open which of them matters:\n"
        )
        yield markdown_table(
            ["setting", f"`{one}`", f"`{other}`"], list(_settings_apart(one, other))
        )


def _settings_apart(one: str, other: str) -> Iterator[list[str]]:
    """What two protocols set differently, by backbone; what only some tasks have, after it."""
    for backbone in BACKBONES:
        told: dict[str, list[str]] = {}
        for task, where in ((None, ""), (SHORT_TASKS[0], f", {' and '.join(SHORT_TASKS)}")):
            ours, theirs = (protocol_settings(name, backbone, task) for name in (one, other))
            for name, value in ours.items():
                if value != theirs[name] and name not in told:
                    told[name] = [
                        f"{backbone.upper()} `{name}`{where}",
                        _value(value),
                        _value(theirs[name]),
                    ]
        yield from told.values()


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
                str(change(plain, cell, m))
                for m in ("mean_change", "return")
                for cell in (zero, one)
            )
            rows.append([zero.place, *changes])
        header = [
            f"{MEASURES[m]}, η = {eta:g}" for m in ("mean_change", "return") for eta in (0, ONE_ETA)
        ]
        still = constant_at_one(setup)
        return (
            f"Change from plain to DAMPER with its 95 % interval (protocol `{setup.protocol}`), "
            "where both ends of η "
            "are on record:\n\n"
            + markdown_table(["task", *header], rows)
            + (f"\n{still}\n" if still else "")
        )
    return "No records yet.\n"
