"""Learning curves: training return and smoothness over steps, mean and range over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.engine.run.folder import Run
from damper.plots.style import draw_curve, plain_log_ticks, saved_figure, shades
from damper.seed_groups import group_by_settings

PANELS = {"return": "return", "mean_change": "mean |Δa| (training)"}
MAX_SHADED = 3  # lines with shades of their seeds' range, which hide each other
EMPHASISED = ("plain", "damper")  # shaded among more


def draw_curves(runs: Mapping[str, Run], path: Path, title: str = "") -> Path:
    """One panel per measure, one line per group of agents of the runs, which are by method."""
    lines = []
    for method, run in runs.items():
        groups = group_by_settings(run.agents)
        for (label, members), look in zip(groups.items(), shades(method, len(groups)), strict=True):
            lines.append((method, run, members, f"{method} {label}".removesuffix(" all"), look))
    with saved_figure(path) as figure:
        figure.set_size_inches(9, 3.4)
        axes = figure.subplots(1, len(PANELS))
        for axis, (measure, axis_label) in zip(axes, PANELS.items(), strict=True):
            for method, run, members, label, look in lines:
                steps, values = _series(run, measure, members)
                strong = len(lines) <= MAX_SHADED or method in EMPHASISED
                if len(steps):
                    draw_curve(axis, steps, values, look, label, strong, strong)
            axis.set(xlabel="step", ylabel=axis_label)
            axis.xaxis.set_major_formatter("{x:,.0f}")
        axes[-1].set_yscale("log")
        plain_log_ticks(axes[-1].yaxis)
        if handles := axes[0].get_legend_handles_labels()[0]:
            place: Any = {"loc": "outside lower center", "ncols": 5, "frameon": False}
            figure.legend(handles=handles, fontsize=9, **place)
        figure.suptitle(f"{title}, mean and range of the seeds", x=0.01, ha="left", fontsize=11)
    return path


def _series(run: Run, measure: str, members: list[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Steps, and mean, lowest and highest ``[3, steps]``."""
    steps, rows = [], []
    for line in run.metrics():
        row = [line[measure][i] for i in members] if measure in line else []
        if any(value is not None for value in row):
            steps.append(line["step"])
            rows.append(row)
    if not rows:
        return np.empty(0), np.empty((3, 0))
    table = np.array(rows, dtype=np.float64)
    values = [function(table, axis=1) for function in (np.nanmean, np.nanmin, np.nanmax)]
    return np.array(steps), np.stack(values)
