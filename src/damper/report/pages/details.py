"""What stands behind the results page and would make it long: further comparisons, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from damper.experiments.paper_experiments import BACKBONES
from damper.report.pages.findings import pairs_section, swept_etas
from damper.report.pages.gaps import Gap, gaps_between, place, plain_and_damper, protocol_gaps, tell_apart
from damper.report.pages.headline import takeaway
from damper.report.pages.returns import distance_from_paper, late_returns
from damper.report.statistics.cells import COMPARED, MEASURES, Setup, main_setups
from damper.report.statistics.estimates import median
from damper.report.statistics.numbers import number
from damper.report.tables.markup import markdown_table
from damper.report.tables.result_tables import code
from damper.terminal import counted

HEAD = """# Further comparisons

Written by `damper report` from the records; do not edit. What the [results](../results.md) rest on, and
the comparisons that are too long for them.
"""


def details(found: Sequence[Setup]) -> str:
    """The whole page."""
    main = main_setups(found)
    if not main:
        at = "at the settings of a protocol " if found else ""
        return f"{HEAD}\nNo records {at}yet.\n"
    parts = [
        *(pairs_section(setup, takeaway(setup)) for setup in main[1:]),
        *_protocols(main),
        *_etas(main),
        *_precision(found),
        *_units(found),
    ]
    return "\n".join([HEAD, *parts, *_starts(main), *_end_of_training(main), _code(main)])


def _protocols(main: Sequence[Setup]) -> Iterator[str]:
    """Every comparison of the two published settings."""
    if gaps := protocol_gaps(main):
        yield f"## The same method under both protocols\n\n{tell_apart(gaps)}\n"
        header = ["cell", *(f"`{setup.protocol}`" for setup in main[:2]), "difference"]
        yield markdown_table(header, [gap.row for gap in gaps])


def _etas(main: Sequence[Setup]) -> Iterator[str]:
    """Medians over η."""
    rows = []
    for setup in main:
        for cells in swept_etas(setup):
            for measure in COMPARED:
                medians = (median(cell.means(measure)) for cell in cells)
                words = f"`{setup.protocol}` {cells[0].place}, {MEASURES[measure]}"
                rows.append([words, *(number(median, measure) for median in medians)])
    if rows:
        etas = [cell.settings["eta"] for cell in next(cells for setup in main for cells in swept_etas(setup))]
        yield "## Medians of the sweep\n\nOf the seeds, over η; the means stand among the [results](../results.md).\n"
        yield markdown_table(["cell", *(f"η = {eta:g}" for eta in etas)], rows)


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
                gaps += gaps_between(other, cell, f"`{a.protocol}` {place(cell)}") if other else []
    if gaps:
        yield f"## TF32 beside float32\n\nThe same agents trained both ways. {tell_apart(gaps)}\n"
        yield markdown_table(["cell", "TF32", "float32", "difference"], [gap.row for gap in gaps])


def _units(found: Sequence[Setup]) -> Iterator[str]:
    """Cells that differ in the units of the temporal loss alone."""
    gaps: list[Gap] = []
    for setup in found:
        for cell in setup.cells:
            changed = cell.settings.get("units") == "environment"
            other = setup.find(cell.backbone, cell.task, cell.method) if changed else None
            gaps += gaps_between(cell, other, f"`{setup.protocol}` {place(cell)}") if other else []
    if gaps:
        yield (
            "## Units of the temporal loss\n\nIts actions in the environment's units, and in the policy's, [−1, 1], "
            f"as everywhere else here ([why it matters](../methods/temporal.md#units)). {tell_apart(gaps)}\n"
        )
        yield markdown_table(["cell", "environment's", "policy's", "difference"], [gap.row for gap in gaps])


def _starts(main: Sequence[Setup]) -> Iterator[str]:
    """How far means are from the paper's, beside what other seeds and other start states could do to them."""
    rows, far, without = [], 0, 0
    for setup in main:
        for cell in plain_and_damper(setup):
            distance = distance_from_paper(cell)
            if distance is None:
                continue
            mean, interval = cell.mean("return"), distance.interval()
            far += interval.excludes_zero
            without += distance.interval("starts", "seeds").excludes_zero
            told = "{} [{}, {}]".format(*(number(v, "return", mean) for v in (distance.value, *interval)))
            means = [number(value, "return", mean) for value in (mean, mean - distance.value)]
            sizes = [f"±{number(distance.size(name), 'return', mean)}" for name in distance.errors]
            row = [
                f"`{setup.protocol}` {place(cell)}",
                *means,
                f"**{told}**" if interval.excludes_zero else told,
                *sizes,
            ]
            rows.append(row if "paper" in distance.errors else [*row, "–"])
    if not rows:
        return
    yield (
        f"## Beside the paper's returns\n\nThe 95 % interval of the distance (Student's t) excludes zero for {far} of "
        f"{counted(len(rows), 'mean')}, in bold; for {without} if the paper's means had no error. By chance 1 in 20 "
        "would, and the others are not shown to agree. The standard errors: the choice of ten starts, that of the "
        "seeds, and the paper's own, which is its printed deviation over √5, as of the five seeds that its caption "
        "names. The numbers look pooled over episodes; then that is too large. All other intervals are conditional "
        "on the ten fixed starts, which every policy here sees.\n\n"
        + markdown_table(
            ["cell", "return", "the paper's", "distance", "error: starts", "error: seeds", "error: the paper's"], rows
        )
    )


def _end_of_training(main: Sequence[Setup]) -> Iterator[str]:
    """One policy per seed is evaluated, the last one; whether it is a fair sample shows in the training before it."""
    rows = []
    for setup in main:
        for whole in plain_and_damper(setup):
            cell = whole.known("return")
            trained = late_returns(cell) if cell.records else None
            if trained is None:
                continue
            evaluated = cell.means("return")
            scale = float(np.abs(evaluated).max())
            seeds = ("; ".join(number(float(v), "return", scale) for v in values) for values in (evaluated, trained))
            means = (number(float(values.mean()), "return", scale) for values in (evaluated, trained))
            words = (f"{mean} ({own})" for mean, own in zip(means, seeds, strict=True))
            rows.append([f"`{setup.protocol}` {place(cell)}", *words])
    if not rows:
        return
    yield (
        "## Last policies, and the end of training\n\nThe evaluated policy is a seed's last one. Beside it: the mean "
        "return of the training episodes in the last tenth of the steps, with exploration, of many policies. Where one "
        "seed falls far below its own training, its last policy is no fair sample of it; where both are low, it "
        "learned little. Seeds in brackets.\n\n"
        + markdown_table(["cell", "evaluated: mean (seeds)", "end of training: mean (seeds)"], rows)
    )


def _code(main: Sequence[Setup]) -> str:
    lines = [
        f"- `{setup.protocol}`, {cells[0].place}: {code(cells)}"
        for setup in main
        for backbone in BACKBONES
        for task in setup.tasks(backbone)
        if (cells := [cell for cell in setup.cells if (cell.backbone, cell.task) == (backbone, task)])
    ]
    return "## Code behind the tables\n\n" + "\n".join(lines) + "\n"
