"""Action traces and their spectra: the picture that shows a policy shaking, or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.errors import MissingExtraError
from damper.metrics import smoothness, spectrum

COLOURS = ("#332288", "#CC6677", "#44AA99", "#DDCC77", "#117733", "#88CCEE", "#AA4499", "#999933")
WINDOW = 200  # steps drawn; longer traces are unreadable


def pyplot() -> Any:
    """Matplotlib without a screen, or the sentence that says how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError('pictures need matplotlib: pip install "damper-rl[plot]".') from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "damper", "axes.spines.top": False, "axes.spines.right": False})
    return plt


def save(figure: Any, path: Path) -> Path:
    """Write a figure, the same bytes for the same drawing, and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot().close(figure)
    return path


def draw_traces(
    traces: Mapping[str, NDArray[np.float32]],
    path: Path,
    title: str = "",
    period: float | None = None,
    dimension: int = 0,
) -> Path:
    """One row per trace: the action over time at left, its amplitude spectrum at right, on shared axes.

    Args:
        traces: label -> actions ``[T, A]`` of one episode each.
        path: where to write; the ending chooses the format.
        title: what task and seed this is.
        period: seconds per step, for axes in seconds and hertz.
        dimension: which action dimension to draw.
    """
    plt = pyplot()
    count, unit = len(traces), period or 1.0
    figure, axes = plt.subplots(count, 2, figsize=(9, 1.1 + 1.55 * count), squeeze=False, sharex="col", sharey="col",
                                width_ratios=(2.2, 1), layout="constrained")  # fmt: skip
    for (label, actions), colour, (left, right) in zip(traces.items(), _cycle(count), axes, strict=True):
        shown = actions[:WINDOW, dimension]
        left.step(np.arange(len(shown)) * unit, shown, where="post", color=colour, linewidth=1.1)
        left.set_title(f"{label}   sm {smoothness(actions):.3f}", loc="left", fontsize=10)
        left.set_ylabel("action")
        frequency, amplitude = spectrum(actions, period)
        right.plot(frequency, amplitude[:, dimension] if amplitude.ndim > 1 else amplitude, color=colour, linewidth=1.1)
        right.set_ylabel("amplitude")
    axes[-1][0].set_xlabel("time (s)" if period else "step")
    axes[-1][1].set_xlabel("frequency (Hz)" if period else "cycles per step")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return save(figure, path)


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
