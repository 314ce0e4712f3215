"""Action traces and their spectra: the picture that shows a policy shaking, or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from damper.metrics import mean_change, spectrum
from damper.plots.style import FAINT, GREY, Look, saved_figure

WINDOW = 200  # steps drawn; longer traces are unreadable
FLOOR = 1e-4  # of the action's range: amplitudes below it are not told apart


class Trace(NamedTuple):
    """One episode's actions ``[T, A]``, with the bounds ``[A]`` they were clipped to."""

    actions: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    look: Look


def draw_traces(
    traces: Mapping[str, Trace], path: Path, title: str = "", period: float | None = None
) -> Path:
    """One row per trace: its actions at left, the spectrum of their motion at right.

    Of several action dimensions the one that moves most is drawn, and named. With ``period``, the
    seconds per step, axes are in seconds and hertz.
    """
    count, dimension = len(traces), busiest_dimension(list(traces.values()))
    with saved_figure(path) as figure:
        figure.set_size_inches(9, 1.1 + 1.6 * count)
        shared: dict[str, Any] = {"sharex": "col", "sharey": "col"}
        axes = figure.subplots(count, 2, squeeze=False, width_ratios=(2.2, 1), **shared)
        for (label, trace), (left, right) in zip(traces.items(), axes, strict=True):
            moved = mean_change(trace.actions, trace.low, trace.high)
            draw_trace(left, trace, dimension, period)
            left.set_title(f"{label}: moves {100 * moved:.1f} % of its range per step", fontsize=10)
            _draw_spectrum(right, trace, dimension, period)
        size = len(trace.low)
        label_axes(axes[-1], max(len(trace.actions) for trace in traces.values()), period)
        chosen = f"; action {dimension + 1} of {size}, which moves most" if size > 1 else ""
        figure.suptitle(title + chosen, x=0.01, ha="left", fontsize=11)
    return path


def label_axes(row: Any, longest: int, period: float | None) -> None:
    """Units of an axis of actions, the first of ``longest``, and of one of their spectrum."""
    part = f", first {WINDOW} of {longest:,} steps" if longest > WINDOW else ""
    row[0].set_xlabel(("time (s)" if period else "step") + part)
    row[1].set_xlabel("frequency (Hz)" if period else "frequency (cycles per step)")


def busiest_dimension(traces: Sequence[Trace]) -> int:
    """The action dimension that moves most per step, as a share of its range, over all traces."""
    moving = [trace for trace in traces if len(trace.actions) > 1]
    moves = [np.abs(np.diff(t.actions, axis=0)).mean(0) / (t.high - t.low) for t in moving]
    return int(np.argmax(np.mean(moves, axis=0))) if moves else 0


def draw_trace(axis: Any, trace: Trace, dimension: int = 0, period: float | None = None) -> None:
    """The first steps of an action on the scale of its range, the bounds drawn and on the axis."""
    low, high = float(trace.low[dimension]), float(trace.high[dimension])
    shown = trace.actions[:WINDOW, dimension]
    times = np.arange(len(shown)) * (period or 1.0)
    axis.step(times, shown, where="post", color=trace.look.colour, linewidth=1.1)
    for bound in (low, high):
        axis.axhline(bound, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    margin, middle = 0.06 * (high - low), (low + high) / 2
    axis.set(ylim=(low - margin, high + margin), yticks=[low, middle, high], ylabel="action")
    axis.yaxis.set_major_formatter("{x:.3g}")


def _draw_spectrum(axis: Any, trace: Trace, dimension: int, period: float | None) -> None:
    """Amplitudes of the action without its mean, which is no motion, as shares of its range."""
    actions = trace.actions[:, dimension].astype(np.float64)
    frequency, amplitude = spectrum(actions - actions.mean(), period)
    share = amplitude[1:] / (trace.high[dimension] - trace.low[dimension])
    axis.plot(frequency[1:], np.maximum(share, FLOOR), color=trace.look.colour, linewidth=1.1)
    axis.set(yscale="log", ylim=(FLOOR, 1.0), yticks=[1e-4, 1e-2, 1.0], ylabel="share of range")
    axis.set_yticklabels(["≤0.01 %", "1 %", "100 %"], fontsize=8, color=GREY)
    axis.minorticks_off()
