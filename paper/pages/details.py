"""What stands behind the results page and would make it long: further comparisons, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from damper.tables import markdown_table
from damper.terminal import counted
from paper.experiments.catalogue import BACKBONES, ETAS
from paper.pages.below_paper import distance_from_paper, late_returns
from paper.pages.findings import pairs_section, swept_etas
from paper.pages.gaps import Gap, gaps_between, plain_and_damper, protocol_gaps, tell_apart
from paper.pages.headline import counts_of_signs
from paper.statistics.cells import COMPARED, MEASURES, Cell, Setup, main_setups
from paper.statistics.estimates import mean_interval, median
from paper.statistics.numbers import number, with_interval
from paper.tables.result_tables import code_versions

HEAD = """# Further comparisons

Comparisons behind the [results](../results.md) that are too long for that page. Written by `python -m paper report` from the
records; do not edit.
"""


def details(found: Sequence[Setup]) -> str:
    """The whole page."""
    main = main_setups(found)
    if not main:
        at = "at the settings of a protocol " if found else ""
        return f"# Further comparisons\n\nNo records {at}yet.\n"  # nor a page of results to link to
    parts = [
        *(pairs_section(setup, "tables.md", counts_of_signs(setup)) for setup in main[1:]),
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
    """Means with their intervals and medians over η."""
    rows = [
        [
            f"`{setup.protocol}` {cells[0].place}, {MEASURES[measure]}",
            *(_with_interval(cell, measure) for cell in cells),
        ]
        for setup in main
        for cells in swept_etas(setup)
        for measure in COMPARED
    ]
    if rows:
        yield "## The sweep over eta\n\nMeans over the seeds with 95 % intervals, and medians.\n"
        yield markdown_table(["cell", *(f"η = {eta:g}" for eta in ETAS)], rows)


def _with_interval(cell: Cell, measure: str) -> str:
    means = cell.means(measure)
    below = (f"median {number(median(means), measure, cell.mean(measure))}", cell.constant_note)
    told = with_interval(cell.mean(measure), mean_interval(means), measure)
    return told + "".join(f"<br><small>{line}</small>" for line in below if line)


def _precision(found: Sequence[Setup]) -> Iterator[str]:
    """Setups that differ in TF32 alone."""
    gaps: list[Gap] = []
    for a in found:
        for b in found:
            one, other = (
                (s.protocol, s.deviations, s.backend, s.episodes, {**s.numerics, "tf32": True})
                for s in (a, b)
            )
            versions = [
                {**a.physics, **b.physics},
                {**b.physics, **a.physics},
            ]  # alike unless both have a simulator's
            if (
                one != other
                or versions[0] != versions[1]
                or a.numerics["tf32"] <= b.numerics["tf32"]
            ):
                continue
            for cell in b.published:
                twin = a.find(cell.backbone, cell.task, cell.method)
                gaps += gaps_between(twin, cell, f"`{a.protocol}` {cell.name}") if twin else []
    if gaps:
        yield f"## TF32 against float32\n\nThe same agents trained both ways. {tell_apart(gaps)}\n"
        yield markdown_table(["cell", "TF32", "float32", "difference"], [gap.row for gap in gaps])


def _units(found: Sequence[Setup]) -> Iterator[str]:
    """Cells that differ in the units of the temporal loss alone."""
    gaps: list[Gap] = []
    for setup in found:
        for cell in setup.cells:
            if cell.settings.get("units") == "environment":
                others = {name: value for name, value in cell.settings.items() if name != "units"}
                for twin in setup.cells:
                    if (twin.place, twin.method, twin.settings) == (
                        cell.place,
                        cell.method,
                        others,
                    ):
                        gaps += gaps_between(
                            cell, twin, f"`{setup.protocol}` {cell.place} {twin.label}"
                        )
    if gaps:
        yield (
            "## Units of the temporal loss\n\nThe loss computed on actions in the environment's units, and in the "
            "policy's, [−1, 1], which all other records use ([why it "
            "matters](../methods/temporal.md#units)). "
            f"{tell_apart(gaps)}\n"
        )
        yield markdown_table(
            ["cell", "environment's", "policy's", "difference"], [gap.row for gap in gaps]
        )


def _starts(main: Sequence[Setup]) -> Iterator[str]:
    """How far means are from the paper's, beside what other seeds and other start states could do to them."""
    rows, far, without = [], 0, 0
    for setup in main:
        for cell in plain_and_damper(setup):
            distance = distance_from_paper(cell)
            if distance is None:
                continue
            far += distance.interval().excludes_zero
            without += distance.interval("starts", "seeds").excludes_zero
            means = [
                distance.number(value) for value in (distance.mean, distance.mean - distance.value)
            ]
            sizes = [f"±{distance.number(distance.size(name))}" for name in distance.errors]
            rows.append([f"`{setup.protocol}` {cell.name}", *means, str(distance), *sizes])
    if not rows:
        return
    yield (
        "## Returns against the paper's\n\nThe 95 % interval of the difference (Student's t) excludes zero for "
        f"{far or 'none'} of {counted(len(rows), 'mean')}, in bold; if the paper's means had no "
        "error, it would for "
        f"{without or 'none'}. By chance it would for 1 of 20; where it includes zero, agreement "
        "is not shown. The "
        "interval combines three standard errors: from the choice of the ten starts, from that of "
        "the seeds, and the "
        "paper's own. The last is the paper's printed standard deviation over √5, because its "
        "caption names five "
        "seeds; the printed deviations look pooled over episodes, and then this error is too "
        "large. All other "
        "intervals are conditional on the ten fixed starts, which every policy here sees.\n\n"
        + markdown_table(
            [
                "cell",
                "return",
                "paper",
                "difference",
                "error: starts",
                "error: seeds",
                "error: paper",
            ],
            rows,
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
            seeds = (
                "; ".join(number(float(v), "return", scale) for v in values)
                for values in (evaluated, trained)
            )
            means = (
                number(float(values.mean()), "return", scale) for values in (evaluated, trained)
            )
            words = (f"{mean} ({own})" for mean, own in zip(means, seeds, strict=True))
            rows.append([f"`{setup.protocol}` {cell.name}", *words])
    if not rows:
        return
    yield (
        "## Last policies, and the end of training\n\nThe evaluated policy is a seed's last one. The second column "
        "has the mean return of the training episodes in the last tenth of the steps, with "
        "exploration and of many "
        "policies. Where a seed is evaluated far below its own training, its last policy is not a "
        "fair sample; where "
        "both are low, it learned little.\n\n"
        + markdown_table(
            ["cell", "evaluated: mean (each seed)", "end of training: mean (each seed)"], rows
        )
    )


def _code(main: Sequence[Setup]) -> str:
    lines = [
        f"- `{setup.protocol}`, {cells[0].place}: {code_versions(cells)}"
        for setup in main
        for backbone in BACKBONES
        for task in setup.tasks(backbone)
        if (
            cells := [
                cell for cell in setup.cells if (cell.backbone, cell.task) == (backbone, task)
            ]
        )
    ]
    return "## Code behind the tables\n\n" + "\n".join(lines) + "\n"
