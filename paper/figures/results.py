"""The paper's figures from records: fronts, curves, sweeps, traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from damper.plots.style import FAINT, GREY, LOOKS, Draw, draw_all, draw_curve, look, plain_log_ticks
from damper.tasks import PAPER_TASKS
from paper.experiments.catalogue import ABLATION_TASKS, BACKBONES, ETAS, TABLE_METHODS
from paper.experiments.printed import title
from paper.experiments.records import unpack_trace
from paper.statistics.cells import Cell, Setup, smoothest
from paper.statistics.estimates import normalised, pareto

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCENT, BEST = LOOKS["damper"].colour, LOOKS["pave"].colour
ENTRY_INCHES = 1.4  # of a legend
SM_EDGE = 0.01


def draw_result_figures(
    setup: Setup, folder: Path, formats: Sequence[str] = ("svg", "png", "pdf")
) -> list[Path]:
    """Every figure that the setup has records for, in each format."""
    figures: dict[str, Draw] = {}
    for backbone in BACKBONES:
        tasks = [task for task in setup.tasks(backbone) if setup.find(backbone, task, "damper")]
        if tasks:
            figures[f"fronts-{backbone}"] = partial(_fronts, setup, backbone, tasks)
            figures[f"curves-{backbone}"] = partial(_curves, setup, backbone, tasks)
    swept = [task for task in PAPER_TASKS if len(setup.sweep(task)) > 1]
    if swept:
        figures["weights"] = partial(_weights, setup, swept)
    etas = [task for task in ABLATION_TASKS if _moving_sweep(setup.etas(task))]
    if etas:
        figures["eta"] = partial(_etas, setup, etas)
    walkers = {b: cells for b in BACKBONES if len(cells := _walkers(setup, b)) == 2}
    if walkers:
        figures["walker-variation"] = partial(_variation, walkers)
    return draw_all(figures, folder, formats)


def _panels(figure: Figure, count: int) -> list[Any]:
    """So many panels, three in a row."""
    rows, columns = -(-count // 3), min(count, 3)
    figure.set_size_inches(3.3 * columns, 2.5 * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[count:]:
        axis.set_visible(False)
    return axes[:count]


def _fronts(setup: Setup, backbone: str, tasks: Sequence[str], figure: Figure) -> None:
    """Seeds and means of every method, and the front of the means that none beats in both measures.

    Most agents of a method on the front move. What is smoother than ``SM_EDGE`` stands there.
    """
    axes = _panels(figure, len(tasks))
    for task, axis in zip(tasks, axes, strict=True):
        means, moving = [], []
        for method in TABLE_METHODS:
            cell = setup.find(backbone, task, method)
            if cell is None:
                continue
            colour, marker, _ = look(method)
            sm, re = cell.means("sm"), cell.means("return")
            axis.plot(np.maximum(sm, SM_EDGE), re, marker, color=colour, alpha=0.3, markersize=3)
            means.append((float(re.mean()), max(float(sm.mean()), SM_EDGE)))
            moving += [] if cell.mostly_constant else means[-1:]
            mean_return, mean_sm = means[-1]
            name = title(method, backbone)
            axis.plot(mean_sm, mean_return, marker, color=colour, label=name, markersize=7)
        front = [moving[i] for i in pareto(moving)]
        sms, returns = [sm for _, sm in front], [re for re, _ in front]
        axis.plot(sms, returns, ":", color=FAINT, linewidth=1.2, zorder=0)
        axis.set(title=task, xlabel="sm", ylabel="return", xscale="log")
        plain_log_ticks(axis.xaxis)
    _legend(figure, axes, backbone)


def _legend(figure: Figure, axes: Sequence[Any], backbone: str) -> None:
    """One legend for all panels, below them, in the table's order and no wider than they are."""
    drawn: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        drawn |= dict(zip(labels, handles, strict=True))
    labels = [label for method in TABLE_METHODS if (label := title(method, backbone)) in drawn]
    columns = min(len(labels), int(figure.get_figwidth() / ENTRY_INCHES))
    handles = [drawn[label] for label in labels]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _curves(setup: Setup, backbone: str, tasks: Sequence[str], figure: Figure) -> None:
    """Training return over steps."""
    axes = _panels(figure, len(tasks))
    for task, axis in zip(tasks, axes, strict=True):
        for method in TABLE_METHODS:
            cell = setup.find(backbone, task, method)
            steps, curves = cell.curves() if cell else ([], {})
            strong = method in ("plain", "damper")
            if "return" in curves:
                style, name = look(method), title(method, backbone)
                draw_curve(axis, steps, curves["return"], style, name, strong, strong)
        axis.set(title=task, xlabel="thousand steps", ylabel="training return")
        axis.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1000:g}")
    _legend(figure, axes, backbone)


def _weights(setup: Setup, tasks: Sequence[str], figure: Figure) -> None:
    """Smoothness and return of the fixed weights."""
    figure.set_size_inches(2.5 * len(tasks), 4.4)
    axes = figure.subplots(2, len(tasks), squeeze=False, sharex=True)
    for column, task in zip(axes.T, tasks, strict=True):
        cells = setup.sweep(task)
        best, ours = smoothest(cells), setup.find("td3", task, "damper")
        for axis, measure, label in zip(column, ("sm", "return"), ("sm", "return"), strict=True):
            axis.plot(
                list(cells),
                [cell.mean(measure) for cell in cells.values()],
                "o-",
                color=GREY,
                markersize=3,
            )
            axis.plot(best, cells[best].mean(measure), "D", color=BEST, markersize=7)
            if ours:
                axis.axhline(ours.mean(measure), linestyle="--", color=ACCENT)
            axis.set_ylabel(label)
        column[0].set_title(task)
        column[1].set_xlabel("λ")


def _moving_sweep(cells: Mapping[float, Cell]) -> bool:
    """Whether a sweep is complete and no cell of it has mostly constant agents."""
    return len(cells) == len(ETAS) and not any(cell.mostly_constant for cell in cells.values())


def _etas(setup: Setup, tasks: Sequence[str], figure: Figure) -> None:
    """Smoothness over η, normalised per task as in the paper."""
    figure.set_size_inches(4.6, 3.2)
    axis = figure.subplots()
    for task, colour, marker in zip(
        tasks, (ACCENT, BEST, LOOKS["grad-caps"].colour), "os^", strict=False
    ):
        means = normalised([cell.mean("sm") for cell in setup.etas(task).values()])
        axis.plot(ETAS, means, f"{marker}-", color=colour, label=task)
    axis.set(xlabel="η", ylabel="normalised sm")
    axis.legend(frameon=False)


def _walkers(setup: Setup, backbone: str) -> list[Cell]:
    cells = [setup.find(backbone, "Walker", method) for method in ("plain", "damper")]
    return [
        cell for cell in cells if cell is not None and any(record.trace for record in cell.records)
    ]


def _variation(cells: dict[str, list[Cell]], figure: Figure) -> None:
    """How far the action moves per step along one episode: the longest on record of each policy."""
    figure.set_size_inches(4.6 * len(cells), 2.9)
    axes = figure.subplots(1, len(cells), squeeze=False, sharey=True)
    for axis, (backbone, pair) in zip(axes.flat, cells.items(), strict=True):
        for cell in pair:
            traces = [unpack_trace(record.trace) for record in cell.records if record.trace]
            moves = np.linalg.norm(np.diff(max(traces, key=len), axis=0), axis=1)
            steps, label = np.arange(1, len(moves) + 1), title(cell.method, backbone)
            axis.plot(steps, moves, color=look(cell.method).colour, linewidth=0.7, label=label)
        axis.set(title=pair[0].place, xlabel="step")
        axis.legend(frameon=False, ncols=2, loc="upper right")
    axes[0, 0].set_ylabel("‖aₜ − aₜ₋₁‖")
