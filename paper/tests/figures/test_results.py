"""Figures show what is on record, whole and readable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

from paper.experiments.catalogue import AgentSpec
from paper.experiments.store import Record
from paper.figures.results import _curves, _fronts, _moving_sweep, _weights, draw_result_figures
from paper.statistics.cells import setups
from paper.tests.experiments.helpers import agents_of, invented


def drawn(folder: Path, weights: tuple[float, ...]) -> set[str]:
    agents = agents_of(
        "td3-table", "scalarization-sweep", tasks=("Hopper",), methods=("damper", "scalarization")
    )
    chosen = [
        a for a in agents if a.identity["method_settings"].get("weight", weights[0]) in weights
    ]
    (setup,) = setups([invented(agent) for agent in chosen])
    return {path.stem for path in draw_result_figures(setup, folder, ("svg",))}


def test_one_weight_is_no_sweep(tmp_path: Path) -> None:
    assert "weights" not in drawn(tmp_path / "one", (0.5,))
    assert "weights" in drawn(tmp_path / "two", (0.5, 1.0))


def still(agent: AgentSpec, sm: float, constant: bool) -> Record:
    record = invented(agent, sm=sm)
    return replace(
        record, episodes={**record.episodes, **({"mean_change": [0.0] * 10} if constant else {})}
    )


def test_one_constant_action_is_drawn_but_no_part_of_the_front() -> None:
    level = {"plain": 2.0, "caps": 1.0, "damper": 0.02}
    agents = agents_of("td3-table", tasks=("Hopper",), methods=tuple(level))

    def front(constant: int) -> list[float]:
        records = [
            still(
                a,
                level[a.identity["method"]],
                a.identity["method"] == "damper" and a.rank < constant,
            )
            for a in agents
        ]
        figure = Figure(layout="constrained")
        _fronts(setups(records)[0], "td3", ("Hopper",), figure)
        lines = figure.axes[0].lines
        assert any(list(line.get_xdata()) == pytest.approx([0.02]) for line in lines), (
            "its mean is drawn"
        )
        (dotted,) = (line for line in lines if line.get_linestyle() == ":")
        return [float(x) for x in dotted.get_xdata()]

    assert front(2) == pytest.approx([0.02]) and front(3) == pytest.approx([1.0])


def test_neither_the_smoothest_weight_nor_the_chart_of_eta_has_one_constant_action() -> None:
    records = [
        still(agent, abs(agent.identity["method_settings"].get("weight", 1.0) - 0.3) + 0.5, False)
        for agent in agents_of("scalarization-sweep", "eta-sweep", tasks=("Hopper",))
    ]
    (setup,) = setups(records)
    assert _moving_sweep(setup.etas("Hopper")) and not _moving_sweep(setup.etas("Walker"))

    def held(record: Record) -> Record:
        settings = record.identity["method_settings"]
        lost = (
            {"mean_change": [0.0] * 10}
            if settings.get("weight") == 0.3 or settings.get("eta") == 1.0
            else {}
        )
        return replace(record, episodes={**record.episodes, **lost})

    (constant,) = setups([held(record) for record in records])
    assert len(constant.etas("Hopper")) == 6 and not _moving_sweep(constant.etas("Hopper"))
    for found, best in ((setup, {0.3}), (constant, {0.25, 0.35})):
        figure = Figure(layout="constrained")
        _weights(found, ("Hopper",), figure)
        (diamond,) = (line for line in figure.axes[0].lines if line.get_marker() == "D")
        assert float(diamond.get_xdata()[0]) in best


@pytest.mark.parametrize("draw", [_fronts, _curves])
@pytest.mark.parametrize(
    "tasks", [("Hopper",), ("Hopper", "Ant"), ("Hopper", "Ant", "Walker")], ids=len
)
def test_the_legend_is_inside_the_figure_and_in_the_table_s_order(
    tasks: tuple[str, ...], draw: object
) -> None:
    agents = agents_of("td3-table", tasks=tasks)
    # The first task lacks most methods: the order must not come from it.
    kept = [
        a
        for a in agents
        if a.identity["task"] != tasks[0] or a.identity["method"] in ("plain", "damper", "pave")
    ]
    (setup,) = setups([invented(agent, sm=1.0 + len(agent.identity["method"])) for agent in kept])
    figure = Figure(layout="constrained")
    draw(setup, "td3", tasks, figure)  # type: ignore[operator]
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0
    words = [text.get_text() for text in legend.get_texts()]
    order = ["TD3", "CAPS", "Grad-CAPS", "ASAP", "L2C2", "PAVE", "DAMPER"]
    assert words == (
        [w for w in order if w in ("TD3", "PAVE", "DAMPER")] if len(tasks) == 1 else order
    )
