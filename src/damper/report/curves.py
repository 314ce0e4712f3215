"""Learning curves: training return and smoothness over steps, mean and range over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.engine.run.folder import Run
from damper.engine.run.groups import groups
from damper.report.traces import COLOURS, pyplot, save

PANELS = {"return": "return", "sm": "sm (training)"}


def draw_curves(runs: Mapping[str, Run], path: Path, title: str = "") -> Path:
    """One panel per measure, one line per group of agents with the seeds' range shaded."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(PANELS), figsize=(9, 3.2), layout="constrained")
    colours = iter(COLOURS * 10)
    for name, run in runs.items():
        for label, members in groups(run.agents).items():
            colour = next(colours)
            for axis, (measure, words) in zip(axes, PANELS.items(), strict=True):
                steps, table = _series(run, measure, members)
                if len(steps):
                    axis.plot(
                        steps, np.nanmean(table, 1), color=colour, label=name if label == "all" else f"{name} {label}"
                    )
                    axis.fill_between(
                        steps, np.nanmin(table, 1), np.nanmax(table, 1), color=colour, alpha=0.15, linewidth=0
                    )
                axis.set_xlabel("step")
                axis.set_ylabel(words)
    axes[-1].set_yscale("log")
    if axes[0].get_legend_handles_labels()[0]:
        axes[0].legend(frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return save(figure, path)


def _series(run: Run, measure: str, members: list[int]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Steps and values ``[steps, seeds]``, for the intervals in which some member finished an episode."""
    rows = [(line["step"], [line[measure][i] for i in members]) for line in run.metrics() if measure in line]
    rows = [(step, values) for step, values in rows if any(value is not None for value in values)]
    return np.array([step for step, _ in rows]), np.array([values for _, values in rows], dtype=np.float64)
