"""DAMPER beside plain, a row per task and backbone, all cells straight from the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from damper.intervals import HIGHER, LOWER
from damper.protocols import SHORT_TASKS, protocol_settings
from damper.tables import markdown_table
from paper.claims.comparisons import MIN_SEEDS
from paper.experiments.catalogue import BACKBONES, ETAS, ONE_ETA
from paper.experiments.printed import printed, title
from paper.statistics.cells import (
    COMPARED,
    MEASURES,
    Cell,
    Setup,
    change,
    constant_notes,
    main_setups,
)
from paper.statistics.numbers import number

README_MEASURES = ("mean_change", "return")
# Large and small effects, one at a large cost in return (undecided), and one where it surely costs.
README_PAIRS = (
    ("td3", "LunarLander"),
    ("td3", "Hopper"),
    ("td3", "Walker"),
    ("sac", "Reacher"),
)
NO_BREAK = "\u00a0"  # a space at which no line ends


def pairs(setup: Setup, eta: float | None = None) -> Iterator[tuple[Cell, Cell]]:
    """Plain and DAMPER, at the paper's η or another, wherever both are on record."""
    changed = {} if eta is None else {"eta": eta}
    for backbone in BACKBONES:
        for task in setup.tasks(backbone):
            plain = setup.find(backbone, task, "plain")
            ours = setup.find(backbone, task, "damper", **changed)
            if plain is not None and ours is not None:
                yield plain, ours


def readme_table(setups: Sequence[Setup]) -> str:
    """The first pages' table: for four pairs the action change and the return of both."""
    header = ["task, backbone", "|Δa|: plain", "DAMPER", "change", "return: plain", "DAMPER"]
    rows = []
    for setup in main_setups(setups)[:1]:
        shown = (both for both in pairs(setup) if (both[0].backbone, both[0].task) in README_PAIRS)
        for plain, ours in shown:
            cells = [plain.place]
            for measure in README_MEASURES:
                cells += [number(cell.mean(measure), measure) for cell in (plain, ours)]
                cells.append(marked_change(plain, ours, measure))
            rows.append(cells)
    return markdown_table([*header, "change"], rows) if rows else "No records yet.\n"


def marked_change(plain: Cell, ours: Cell, measure: str) -> str:
    """A change with its interval, in bold where that excludes zero."""
    difference = change(plain, ours, measure)
    return f"**{difference}**" if difference.sign in (LOWER, HIGHER) else str(difference)


def pairs_table(setup: Setup) -> str:
    """All measures: a row for every pair, and one for η = 1 where the paper's is another."""
    measures = (*COMPARED, "length")
    header = ["plain → DAMPER", "η", *(MEASURES[name] for name in measures)]
    rows = []
    for plain, ours in pairs(setup):
        at_one_eta = setup.find(ours.backbone, ours.task, "damper", eta=ONE_ETA)
        for cell in (ours,) if at_one_eta is None or at_one_eta is ours else (ours, at_one_eta):
            notes = [f"<small>{note}</small>" for note in constant_notes(plain, cell)]
            numbers = [_numbers(plain, cell, measure) for measure in measures]
            place = "<br>".join([cell.place, *_seeds(plain, cell), *notes])
            rows.append([place, f"{cell.settings['eta']:g}", *numbers])
    return markdown_table(header, rows) if rows else "No records yet.\n"


def _seeds(plain: Cell, ours: Cell) -> list[str]:
    """The number of seeds where it is not the paper's."""
    counts = sorted({len(plain.seeds), len(ours.seeds)})
    return [] if counts == [MIN_SEEDS] else [f"<small>n = {'/'.join(map(str, counts))}</small>"]


def _numbers(plain: Cell, ours: Cell, measure: str) -> str:
    """Means, change and what the paper prints, a line each; of a length the means alone."""
    means = [number(cell.mean(measure), measure) for cell in (plain, ours)]
    if measure == "length":
        lines = [" → ".join(dict.fromkeys(means))]
    else:
        lines = [" → ".join(means), marked_change(plain, ours, measure)]
        lines += [_without_constant(plain, ours, measure), _paper(ours, measure)]
    return "<br>".join(filter(None, lines)).replace(" ", NO_BREAK)


def _without_constant(plain: Cell, ours: Cell, measure: str) -> str:
    """The change without the agents that hold one action, where they are few."""
    few = len(plain.constant) + len(ours.constant)
    if not few or plain.mostly_constant or ours.mostly_constant:
        return ""
    a, b = (cell.only({*cell.seeds} - {*cell.constant}) for cell in (plain, ours))
    return f"<small>without it {change(a, b, measure)}</small>"


def _paper(ours: Cell, measure: str) -> str:
    """What the paper prints for both."""
    both = [printed(ours.backbone, method, ours.task, measure) for method in ("plain", ours.method)]
    shown = [number(entry.mean, measure) for entry in both if entry]
    complete = ours.published and len(shown) == len(both)
    return f"<small>paper {' → '.join(shown)}</small>" if complete else ""


def constant_table(setups: Sequence[Setup]) -> str:
    """Cells with agents that ended at one and the same action."""
    rows = []
    for setup in setups:
        for cell in (cell for cell in setup.cells if cell.constant):
            eta = f", η = {cell.settings['eta']:g}" if cell.method == "damper" else ""
            plain = setup.find(cell.backbone, cell.task, "plain")
            held = cell.only(cell.constant)
            row = [f"`{setup.protocol}` {cell.place}, {title(cell.method)}{eta}"]
            row.append(f"{len(cell.constant)} of {len(cell.seeds)}")
            row += [number(held.mean(name), name) for name in ("return", "length")]
            rows.append([*row, number(plain.mean("return"), "return") if plain else "–"])
    header = ["cell", "constant agents", "their return", "their episode length"]
    return markdown_table([*header, "plain's return"], rows) if rows else "None.\n"


def swept_etas(setup: Setup) -> Iterator[list[Cell]]:
    """The cells of each task whose sweep over η is complete, in the order of ``ETAS``."""
    for task in setup.tasks("td3"):
        cells = [cell for cell in setup.etas(task).values() if len(cell.seeds) >= MIN_SEEDS]
        if len(cells) == len(ETAS):
            yield cells


def ends_of_sweep_table(main: Sequence[Setup]) -> str:
    """What the whole range of η changes, where a task's sweep is complete."""
    rows = []
    for setup in main:
        for first, *_, last in swept_etas(setup):
            changes = [str(change(first, last, measure)) for measure in COMPARED]
            rows.append([f"`{setup.protocol}` {first.place}", *changes])
    return markdown_table(["cell", *(MEASURES[name] for name in COMPARED)], rows)


def choosing_eta_table(main: Sequence[Setup]) -> str:
    """What both ends of η did to plain's action changes and returns."""
    rows = []
    for setup in main[:1]:
        for plain, ours in pairs(setup, ONE_ETA):
            zero = setup.find(ours.backbone, ours.task, "damper", eta=0.0)
            if zero is not None:
                cells = [(zero, ours, name) for name in README_MEASURES]
                changes = (str(change(plain, cell, name)) for *both, name in cells for cell in both)
                rows.append([plain.place, *changes])
    header = [f"{MEASURES[m]}, η = {eta:g}" for m in README_MEASURES for eta in (0, ONE_ETA)]
    return markdown_table(["task", *header], rows)


def protocol_settings_table(first: str = "pave", second: str = "authors") -> str:
    """What two protocols set differently, by backbone; short tasks are named with theirs."""
    rows = []
    for backbone in BACKBONES:
        listed: set[str] = set()
        for task, where in ((None, ""), (SHORT_TASKS[0], f", {' and '.join(SHORT_TASKS)}")):
            ours, theirs = (protocol_settings(name, backbone, task) for name in (first, second))
            for name in (n for n in ours if ours[n] != theirs[n] and n not in listed):
                listed.add(name)
                values = [_value(settings[name]) for settings in (ours, theirs)]
                rows.append([f"{backbone.upper()} `{name}`{where}", *values])
    return markdown_table(["setting", f"`{first}`", f"`{second}`"], rows)


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value}"
