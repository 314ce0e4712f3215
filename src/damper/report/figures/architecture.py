"""The picture of the code: the way of one transition from the environment's step to a table, module by module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from damper.report.figures.style import GUIDE, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Module(NamedTuple):
    """A file (or several, of which a run uses one) under ``src/damper``, and its part in the walk."""

    path: str
    does: str
    instead: tuple[str, ...] = ()


class Stage(NamedTuple):
    """One room on the way: its modules in the order in which they are called, and what leaves it."""

    title: str
    colour: str
    modules: tuple[Module, ...]
    leaves: str = ""


LOOP, UPDATE, FILES = "#1F7A6D", "#332288", "#A8475A"

WALK = (
    Stage(
        "1  Act and step",
        LOOP,
        (
            Module("engine/loop/trainer.py", "the training loop"),
            Module("engine/loop/acting.py", "policies choose, with exploration"),
            Module(
                "engine/envs/gymnasium_pool.py",
                "P environments step",
                ("engine/envs/envpool_pool.py",),
            ),
        ),
        "Transition: obs, reward, true successor, terminated, [P, ·]",
    ),
    Stage(
        "2  Store and sample",
        LOOP,
        (
            Module("engine/data/episodes.py", "returns, lengths, sm"),
            Module("engine/data/replay.py", "a ring of steps, on the device"),
            Module("engine/data/random_streams.py", "random numbers by counter"),
        ),
        "Batch and noise, [P, B, ·]",
    ),
    Stage(
        "3  Update",
        UPDATE,
        (
            Module("engine/update/learner.py", "compiles, replays CUDA graphs"),
            Module("engine/update/update.py", "critics, then actors"),
            Module("engine/update/population.py", "P agents' state, logs"),
            Module("engine/gradients/objectives.py", "binds losses to the batch"),
            Module("agents/td3.py", "target, critic and actor loss", ("agents/sac.py",)),
            Module("losses/temporal.py", "or another loss, a file each"),
            Module(
                "engine/gradients/autograd.py",
                "gradients g_R and g_T",
                ("engine/gradients/shared_forward.py",),
            ),
            Module("rules/damper.py", "or another rule: one gradient"),
            Module("engine/update/optimiser.py", "Adam, target copies"),
        ),
        "parameters, [P, n]",
    ),
    Stage(
        "4  Keep the run",
        FILES,
        (
            Module("engine/run/metrics_log.py", "metrics.jsonl"),
            Module("engine/run/checkpoint.py", "all that is needed to go on"),
            Module("engine/run/policy.py", "one small file per agent"),
            Module("engine/run/folder.py", "manifest.json"),
        ),
        "Run: a folder",
    ),
    Stage(
        "5  Evaluate and record",
        FILES,
        (
            Module("evaluation/evaluate.py", "deterministic episodes"),
            Module("metrics.py", "sm, mean |Δa|, …"),
            Module("experiments/records.py", "identity, episodes, curve"),
            Module("experiments/store.py", "results/"),
        ),
        "Record: one JSON file per agent",
    ),
    Stage(
        "6  Table",
        FILES,
        (
            Module("report/statistics/cells.py", "records of one cell"),
            Module("report/statistics/estimates.py", "means and intervals"),
            Module("report/claims/policy_claims.py", "the paper's claims, judged"),
            Module("report/tables/result_tables.py", "rows and columns"),
            Module("report/build.py", "docs/results, README"),
        ),
    ),
)

# In points. Cards carry all text, so that the page behind them may be light or dark.
WIDTH, PAD, LINE, HEAD, GAP, MARGIN = 392.0, 8.0, 15.0, 20.0, 27.0, 26.0
CARD = "#F7F7FA"
ARROW: dict[str, Any] = {"color": "#8A8F98", "lw": 1.4}


def architecture(figure: Figure) -> None:
    """The way of one transition through the code: a card for each stage, a line for each module on it."""
    height = sum(_height(stage) for stage in WALK) + GAP * (len(WALK) - 1) + 2
    figure.set_size_inches(WIDTH / 72, height / 72)
    figure.set_facecolor("none")
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    top, tops = 1.0, []
    for stage in WALK:
        tops.append(top)
        _draw_card(axes, stage, top)
        top += _height(stage)
        if stage.leaves:
            _draw_arrow(axes, stage.leaves, top)
        top += GAP
    _draw_loop(axes, tops[0] + HEAD / 2, tops[2] + HEAD / 2)


def _height(stage: Stage) -> float:
    return HEAD + PAD + sum(LINE * (1 + len(module.instead)) for module in stage.modules)


def _draw_card(axes: Axes, stage: Stage, top: float) -> None:
    from matplotlib.patches import Rectangle

    width = WIDTH - MARGIN
    axes.add_patch(
        Rectangle((0, top), width, _height(stage), facecolor=CARD, edgecolor=stage.colour, lw=1)
    )
    axes.add_patch(
        Rectangle((0, top), width, HEAD, facecolor=stage.colour, edgecolor=stage.colour, lw=1)
    )
    axes.text(PAD, top + HEAD / 2, stage.title, color="white", weight="bold", va="center", size=10)
    at = top + HEAD + PAD / 2 + LINE / 2
    for module in stage.modules:
        axes.text(width - PAD, at, module.does, color=INK, va="center", ha="right", size=8.5)
        for name in (module.path, *(f"or {other}" for other in module.instead)):
            left = PAD if name == module.path else 2 * PAD
            axes.text(left, at, name, color=INK, va="center", size=8.5, family="DejaVu Sans Mono")
            at += LINE


def _draw_arrow(axes: Axes, label: str, top: float) -> None:
    centre = (WIDTH - MARGIN) / 2
    axes.annotate("", (centre, top + GAP), (centre, top), arrowprops={"arrowstyle": "-|>", **ARROW})
    _draw_label(axes, label, centre, top + GAP / 2 - 3)


def _draw_loop(axes: Axes, top: float, bottom: float) -> None:
    """The one way back: the policies that act are those that learn."""
    edge, turn = WIDTH - MARGIN, WIDTH - MARGIN / 2
    axes.plot([edge, turn, turn], [bottom, bottom, top], **ARROW)
    axes.annotate("", (edge, top), (turn, top), arrowprops={"arrowstyle": "-|>", **ARROW})
    _draw_label(axes, "policies that act", turn, (top + bottom) / 2, rotation=90)


def _draw_label(axes: Axes, label: str, x: float, y: float, rotation: float = 0) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": GUIDE, "edgecolor": "none"}
    axes.text(x, y, label, color=INK, va="center", ha="center", size=8, rotation=rotation, bbox=box)
