"""The theory's pictures: what the rule does, what it gains, what smoothness measures see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from damper import metrics, theory
from damper.plots.style import GREY, GUIDE, INK, Draw, draw_all, mix
from damper.rules import combine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RETURN, TEMPORAL, PROJECTED = "#332288", "#CC6677", "#44AA99"  # the paper's colours
FORMULAS: dict[str, Any] = {"svg.fonttype": "path", "mathtext.fontset": "cm"}
FORMULAS |= {"axes.titlesize": 11, "axes.labelsize": 12}
ETAS = (0.0, 0.2, 0.5, 0.8, 1.0)
WEIGHTS = (1.0, 0.1)
DASHES = (0, (4, 2.5))

SHOWN = (
    ("sm", "paper's $sm$", TEMPORAL),
    ("mean_change", "mean change", PROJECTED),
    ("spectral_roughness", "spectral roughness", RETURN),
)


def overview(figure: Figure) -> None:
    """The rule: a conflicting pair, an aligned pair, and the length of the temporal part."""
    figure.set_size_inches(11, 4.0)
    conflict, aligned, length = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    _draw_pair(conflict, torch.tensor([0.28, -0.17], dtype=torch.float64))
    _draw_pair(aligned, torch.tensor([0.28, 0.17], dtype=torch.float64))
    conflict.set_title("Conflict: drop what opposes $g_R$")
    aligned.set_title("Aligned: keep all of $g_T$")
    _draw_length(length)


def _draw_pair(axes: Axes, g_T: Tensor) -> None:
    """``g_R`` points up; what keeps its progress ends on or above the level of its tip."""
    g_R = torch.tensor([0.0, 1.0], dtype=torch.float64)
    axes.set(xlim=(-0.36, 1.36), ylim=(-0.34, 1.78), aspect="equal")
    axes.axis("off")
    axes.axhspan(1, 1.78, color=PROJECTED, alpha=0.09, lw=0)
    axes.axhline(1, color=PROJECTED, lw=1, alpha=0.7, ls=(0, (4, 3)))
    kept = r"$\langle g_R,\,d\rangle\,\geq\,n_R^2$"
    axes.text(-0.3, 1.71, kept, color=PROJECTED, va="top", size=11)
    etas = torch.linspace(0, 1, 6, dtype=torch.float64)
    fan = combine(g_R.expand(6, 2), g_T.expand(6, 2), eta=etas)
    for eta, g in zip(etas, fan, strict=True):
        _arrow(axes, g, _shade(float(eta)), width=1.2)
    _arrow(axes, g_R, RETURN)
    _arrow(axes, g_T, TEMPORAL)
    _label(axes, g_R / 2, "$g_R$", RETURN, (-9, 0), ha="right")
    _label(axes, fan[0], r"$\eta=0$", _shade(0), (-9, 10))
    _label(axes, fan[-1], r"$g_{\eta=1}$", _shade(1), (6, 8), ha="left")
    if g_R @ g_T < 0:
        _draw_projection(axes, g_R, g_T, fan[-1])
    else:
        _label(axes, g_T, r"$g_T=\widetilde{g}_T$", TEMPORAL, (6, 1), ha="left")


def _draw_projection(axes: Axes, g_R: Tensor, g_T: Tensor, g: Tensor) -> None:
    """The part that the projection takes away."""
    kept, target = g_T - (g_R @ g_T) * g_R, g_R + g_T / g_T.norm()
    _arrow(axes, kept, PROJECTED)
    for start, end in ((g_T, kept), (target, g)):
        axes.plot(*torch.stack([start, end]).T, color=GREY, lw=1, ls=":")
    axes.plot(*target, "o", ms=4.5, mfc="white", mec=TEMPORAL)
    _label(axes, g_T, "$g_T$", TEMPORAL, (6, -4), ha="left")
    _label(axes, kept, r"$\widetilde{g}_T$", PROJECTED, (6, 2), ha="left")
    _label(axes, target, r"$g_{\mathrm{target}}$", TEMPORAL, (0, -12))


def _draw_length(axes: Axes) -> None:
    ratio = torch.logspace(-3, 1, 200, dtype=torch.float64)
    for eta in ETAS:
        w = ratio.clamp(max=1) ** (1 - eta)
        axes.loglog(ratio, w, color=_shade(eta), lw=2.2)
        _label_start(axes, ratio, w, rf"$\eta={eta:g}$", _shade(eta))
    axes.axvline(1, color=GUIDE, lw=1, zorder=0)
    axes.text(1.15, 7.5e-4, "capped", color=GREY, size=9)
    axes.set(xlim=(8e-5, 14), ylim=(6e-4, 1.8), xlabel=r"$n_T\,/\,n_R$", ylabel=r"$s_\eta\,/\,n_R$")
    _trim(axes, (1e-3, 1e-2, 1e-1, 1, 10))
    axes.set_title(r"Length: $s_\eta=n_R\,\min(n_T/n_R,\,1)^{1-\eta}$")


def gain(figure: Figure) -> None:
    """𝒢 against q at a cosine of −½: lines are closed forms, dots the definition on vectors."""
    c, q = -0.5, torch.logspace(-4, 0, 201, dtype=torch.float64)
    g_T = q[::25, None] * torch.tensor([c, (1 - c * c) ** 0.5], dtype=torch.float64)
    g_R = torch.tensor([1.0, 0.0], dtype=torch.float64).expand_as(g_T)
    figure.set_size_inches(7.2, 4.6)
    axes = figure.subplots()
    # η = 0 and λ = 1 agree at small q: their labels stand one above the other.
    for eta in ETAS:
        closed, direction = theory.damper_gain(q, c, eta), combine(g_R, g_T, eta=eta)
        _draw_gain(axes, q, closed, theory.matched_gain(direction, g_R, g_T), _shade(eta))
        label = rf"$\eta={eta:g}$, slope {2 - eta:g}"
        _label_start(axes, q, closed, label, _shade(eta), 7 if eta == 0 else 0)
    for weight in WEIGHTS:
        closed, direction = theory.scalarization_gain(q, c, weight), g_R + weight * g_T
        _draw_gain(axes, q, closed, theory.matched_gain(direction, g_R, g_T), TEMPORAL, ls=DASHES)
        label = rf"$\lambda={weight:g}$, slope 2"
        _label_start(axes, q, closed, label, TEMPORAL, -7 if weight == 1 else 0)
    axes.set(xscale="log", yscale="log", xlim=(4e-6, 1.5))
    _trim(axes, (1e-4, 1e-3, 1e-2, 1e-1, 1))
    axes.set(xlabel=r"norm ratio $q = n_T\,/\,n_R$", ylabel=r"matched temporal gain $\mathcal{G}$")
    axes.set_title(r"The weaker the temporal gradient, the more $\eta$ gains over any fixed weight")
    _gain_legend(axes)


def _draw_gain(
    axes: Axes, q: Tensor, closed: Tensor, evaluated: Tensor, color: str, ls: Any = "-"
) -> None:
    axes.plot(q, closed, color=color, lw=2, ls=ls)
    axes.plot(q[::25], evaluated, "o", color=color, ms=4.5, mec="white", mew=0.8)


def _label_start(axes: Axes, x: Tensor, y: Tensor, text: str, color: str, shift: float = 0) -> None:
    _label(axes, torch.stack([x[0], y[0]]), text, color, (-8, shift), ha="right")


def _gain_legend(axes: Axes) -> None:
    axes.plot([], [], color=_shade(1), lw=2, label=r"damper $g_\eta$, closed form")
    scalarization = r"scalarization $g_R+\lambda g_T$, closed form"
    axes.plot([], [], color=TEMPORAL, lw=2, ls=DASHES, label=scalarization)
    axes.plot([], [], "o", color=GREY, ms=4.5, label=r"the definition of $\mathcal{G}$ on vectors")
    how: dict[str, Any] = {"title": "cosine $c=-1/2$", "alignment": "left", "fontsize": 9}
    axes.legend(loc="lower right", frameon=False, **how)


def measures(figure: Figure) -> None:
    """Four signals and three measures; the paper's score ranks them as no actuator would."""
    signals = example_signals()
    scores = {name: metrics.summary(actions, -1, 1) for name, actions in signals.items()}
    figure.set_size_inches(11, 4.0)
    rows = figure.subplots(2, 4, height_ratios=(1.25, 1))
    for column, (name, actions) in enumerate(signals.items()):
        trace, bars = rows[0, column], rows[1, column]
        T = len(actions)
        trace.plot(actions, color=INK, lw=1.3 if T <= 200 else 0.4)
        trace.set(title=name, xlim=(0, T), ylim=(-1.12, 1.12), xticks=(0, T), yticks=(-1, 0, 1))
        trace.set_xlabel("steps", labelpad=-9, size=10, color=GREY)
        trace.tick_params(labelleft=column == 0)
        for tick, side in zip(trace.get_xticklabels(), ("left", "right"), strict=True):
            tick.set_horizontalalignment(side)
        _draw_scores(bars, scores[name], list(scores.values()), labelled=column == 0)


def example_signals() -> dict[str, NDArray[np.float64]]:
    """A slow swing, noise for 50 and for 1,000 steps, and the fastest oscillation."""
    noise = np.random.default_rng(1).uniform(-1, 1, 1000)
    return {
        "slow swing": 0.8 * np.sin(2 * np.pi * np.arange(200) * 3 / 200),
        "noise, cut short": noise[:50],
        "noise, full length": noise,
        "from bound to bound": np.tile([1.0, -1.0], 20),
    }


def _draw_scores(
    axes: Axes, scores: dict[str, float], everyone: list[dict[str, float]], labelled: bool
) -> None:
    """One bar per measure, its full width the largest value among ``everyone``."""
    for row, (key, label, color) in enumerate(SHOWN):
        share = scores[key] / max(other[key] for other in everyone)
        axes.barh(row, 1, color=GUIDE, height=0.42, alpha=0.5)
        axes.barh(row, share, color=color, height=0.42)
        axes.text(1.06, row, f"{scores[key]:.2f}", color=color, va="center", weight="bold")
        if labelled:
            axes.text(-0.06, row, label, color=color, va="center", ha="right")
    axes.set(xlim=(0, 1.32), ylim=(2.6, -0.6))
    axes.axis("off")


def _trim(axes: Axes, ticks: tuple[float, ...]) -> None:
    """End the horizontal axis at its first and last tick."""
    axes.set_xticks(ticks)
    axes.minorticks_off()
    axes.spines["bottom"].set_bounds(ticks[0], ticks[-1])


def _shade(eta: float) -> str:
    """η's colour, from the projected gradient's at 0 to the return gradient's at 1."""
    return mix(PROJECTED, RETURN, eta)


def _arrow(axes: Axes, tip: Tensor, color: str, width: float = 2.6) -> None:
    style = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7 + 4 * width}
    style |= {"lw": width, "color": color}
    axes.annotate("", tuple(tip.tolist()), (0, 0), arrowprops=style)


def _label(
    axes: Axes, at: Tensor, text: str, color: str, offset: tuple[float, float], ha: str = "center"
) -> None:
    place: dict[str, Any] = {"textcoords": "offset points", "ha": ha, "va": "center"}
    axes.annotate(text, tuple(at.tolist()), offset, color=color, size=12, **place)


FIGURES: dict[str, Draw] = {"overview": overview, "gain": gain, "metrics": measures}


def draw_theory(folder: Path, formats: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Draw ``FIGURES`` in every format; the files written."""
    return draw_all(FIGURES, folder, formats, FORMULAS)
