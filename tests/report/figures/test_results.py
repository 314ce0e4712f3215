"""Figures show what is on record, whole and readable."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

from damper.report.figures.results import _curves, _fronts, draw_result_figures
from damper.report.statistics.cells import setups
from tests.experiments.helpers import agents_of, invented


def drawn(folder: Path, weights: tuple[float, ...]) -> set[str]:
    agents = agents_of("td3-table", "scalarization-sweep", tasks=("Hopper",), methods=("damper", "scalarization"))
    chosen = [a for a in agents if a.identity["method_settings"].get("weight", weights[0]) in weights]
    (setup,) = setups([invented(agent) for agent in chosen])
    return {path.stem for path in draw_result_figures(setup, folder, ("svg",))}


def test_one_weight_is_no_sweep(tmp_path: Path) -> None:
    assert "weights" not in drawn(tmp_path / "one", (0.5,))
    assert "weights" in drawn(tmp_path / "two", (0.5, 1.0))


@pytest.mark.parametrize("draw", [_fronts, _curves])
@pytest.mark.parametrize("tasks", [("Hopper",), ("Hopper", "Ant"), ("Hopper", "Ant", "Walker")], ids=len)
def test_the_legend_is_inside_the_figure_and_in_the_table_s_order(tasks: tuple[str, ...], draw: object) -> None:
    agents = agents_of("td3-table", tasks=tasks)
    # The first task lacks most methods: the order must not come from it.
    kept = [a for a in agents if a.identity["task"] != tasks[0] or a.identity["method"] in ("plain", "damper", "pave")]
    (setup,) = setups([invented(agent, sm=1.0 + len(agent.identity["method"])) for agent in kept])
    figure = Figure(layout="constrained")
    draw(setup, "td3", tasks, figure)  # type: ignore[operator]
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0
    words = [text.get_text() for text in legend.get_texts()]
    order = ["TD3", "CAPS", "Grad-CAPS", "ASAP", "L2C2", "PAVE", "DAMPER"]
    assert words == ([w for w in order if w in ("TD3", "PAVE", "DAMPER")] if len(tasks) == 1 else order)
