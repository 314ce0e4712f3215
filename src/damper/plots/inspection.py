"""Actions of one log or two, and the spectra of their motion."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from damper.inspection import Inspection, Log
from damper.metrics import spectrum
from damper.plots.style import FAINT, look, saved_figure
from damper.plots.traces import WINDOW, label_axes

MOST = 6  # actions drawn: those that change most


def draw_inspection(
    logs: Mapping[str, Log], inspections: Mapping[str, Inspection], path: Path
) -> Path:
    """A row per action: its first steps at left, the amplitudes of its motion at right.

    ``logs`` and their inspections are by name, one or two of the same actions.
    """
    reports = zip(*(inspection.actions for inspection in inspections.values()), strict=True)
    changes = [max(report.mean_change for report in same) for same in reports]
    shown = sorted(np.argsort(changes)[::-1][:MOST])
    methods = ("plain", "damper") if len(logs) > 1 else ("damper",)
    looks = {name: look(method) for name, method in zip(logs, methods, strict=True)}
    first = next(iter(logs.values()))
    with saved_figure(path) as figure:
        figure.set_size_inches(9, 1.1 + 1.6 * len(shown))
        axes = figure.subplots(len(shown), 2, squeeze=False, sharex="col", width_ratios=(2.2, 1))
        for i, (trace, amplitudes) in zip(shown, axes, strict=True):
            for name, log in logs.items():
                action, period = log.actions[:, i], log.period
                style = {"color": looks[name].colour, "linewidth": 1.1, "label": name}
                steps = np.arange(min(len(action), WINDOW))
                trace.step(steps * (period or 1.0), action[:WINDOW], where="post", **style)
                frequencies, amplitude = spectrum(action - action.mean(), period)
                amplitudes.plot(frequencies[1:], amplitude[1:], **style)
                dashed: Any = {"color": FAINT, "linewidth": 0.8, "linestyle": (0, (4, 3))}
                amplitudes.axvline(inspections[name].above, **dashed)
            trace.set_title(first.action_names[i], fontsize=10)
        label_axes(axes[-1], max(len(log.actions) for log in logs.values()), first.period)
        left_out = len(changes) - len(shown)
        title = f"the {MOST} of {len(changes)} actions that change most" if left_out else ""
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        if len(logs) > 1:
            axes[0][0].legend(fontsize=8)
    return path
