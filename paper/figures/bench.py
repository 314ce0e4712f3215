"""The methods' cost beside the paper's, and the time per agent by population size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from damper.errors import DamperError
from damper.plots.style import GREY, LOOKS, Draw, draw_all, look
from paper.bench.result import read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
PAPER, SHADES = "paper", ("#c7c2f5", LOOKS["damper"].colour)


def draw_bench_figures(
    measured: Path, folder: Path, formats: Sequence[str] = ("svg",)
) -> list[Path]:
    """Draw ``cost`` of all machines, ``scaling`` of the last, from ``measured/<machine>/``."""
    updates, sizes = (
        {path.parent.name.upper(): read(path).rows for path in sorted(measured.glob(f"*/{name}"))}
        for name in ("update.json", "scaling.json")
    )
    if not updates or not sizes:
        raise DamperError(
            "bench must be a folder of folders, one per machine, with update.json and "
            f"scaling.json, but {measured} has none: python -m paper bench --out FOLDER/MACHINE."
        )
    last = list(sizes.items())[-1]
    figures: dict[str, Draw] = {
        "cost": partial(_cost, updates),
        "scaling": partial(_scaling, *last),
    }
    return draw_all(figures, folder, formats, {"font.size": 9})


def _cost(updates: dict[str, Rows], figure: Figure) -> None:
    """Each method's time as a multiple of a plain update of the same backbone."""
    first = next(iter(updates.values()))
    backbones = list(dict.fromkeys(row["backbone"] for row in first))
    figure.set_size_inches(9, 3.6)
    panels = figure.subplots(1, len(backbones), squeeze=False, sharey=True)
    for axes, backbone in zip(panels[0], backbones, strict=True):
        costs = {machine: _ratios(rows, backbone, "× plain") for machine, rows in updates.items()}
        costs[PAPER] = _ratios(first, backbone, "paper's × plain")
        shared = (name for name in costs[PAPER] if all(name in cost for cost in costs.values()))
        methods = [name for name in shared if name != "plain"]
        for i, (machine, ratios) in enumerate(costs.items()):
            colour = GREY if machine == PAPER else SHADES[i % len(SHADES)]
            places = [k + 0.27 * (i - (len(costs) - 1) / 2) for k in range(len(methods))]
            widths = [ratios[name] for name in methods]
            bars = axes.barh(places, widths, 0.25, color=colour, label=machine)
            axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=7, color=GREY)
        axes.axvline(1.0, color=GREY, lw=0.8, ls=":")
        axes.set(title=backbone, xlabel="× a plain update")
        axes.set(yticks=range(len(methods)), yticklabels=methods)
        axes.margins(x=0.12)
    panels[0, 0].invert_yaxis()
    panels[0, -1].legend(frameon=False, loc="lower right")


def _ratios(rows: Rows, backbone: str, column: str) -> dict[str, float]:
    timed = (row for row in rows if row["backbone"] == backbone and row.get(column))
    return {row["method"]: row[column] for row in timed}


def _scaling(machine: str, rows: Rows, figure: Figure) -> None:
    """µs of a whole update per agent, by the number of agents updated together."""
    figure.set_size_inches(5.4, 3.2)
    axes = figure.subplots()
    for backbone, method in dict.fromkeys((row["backbone"], row["method"]) for row in rows):
        members = [row for row in rows if (row["backbone"], row["method"]) == (backbone, method)]
        costs = sorted((row["agents"], row["µs per agent"]) for row in members)
        colour, marker, _ = look(method)
        how: dict[str, Any] = {"color": colour, "marker": marker, "ms": 5}
        axes.loglog(*zip(*costs, strict=True), label=f"{backbone} {method}", **how)
        beside: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": colour}
        for agents, cost in costs if method == "damper" else ():
            axes.annotate(f"{cost:.3g}", (agents, cost), (4, 5), **beside)
    ticks = sorted({row["agents"] for row in rows})
    axes.set(title=machine, xlabel="agents in one update", ylabel="µs per agent")
    axes.set(xticks=ticks, xticklabels=ticks)
    low, high = axes.get_ylim()
    shown = [level for level in (1, 2, 5, 10, 20, 50, 100, 200, 500) if low < level < high]
    axes.set(yticks=shown, yticklabels=shown)
    axes.minorticks_off()
    axes.legend(frameon=False)
