"""The picture of a policy's actions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from damper.cli.evaluate import draw_first_episodes
from damper.plots import traces
from damper.plots.curves import draw_curves
from damper.plots.episodes import first_episodes
from damper.plots.style import look
from damper.plots.traces import Trace, draw_traces
from damper.policies.episodes import Episode
from damper.policies.evaluate import Evaluation
from tests.pictures import kept_figures


def trace(*columns: object, method: str = "damper") -> Trace:
    actions = np.stack(
        [np.broadcast_to(np.asarray(c, np.float32), (300,)) for c in columns], axis=1
    )
    bound = np.full(len(columns), 2.0, np.float32)
    return Trace(actions, -bound, bound, look(method))


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The figures instead of files."""
    monkeypatch.chdir(tmp_path)
    return kept_figures(monkeypatch)


STEPS = np.arange(300)


def test_bounds_are_drawn_and_on_the_axis(drawn) -> None:
    draw_traces({"plain": trace(0.1 * np.sin(STEPS), method="plain")}, Path("x.png"))
    left = drawn[0].axes[0]
    assert left.get_ylim()[0] < -2 and left.get_ylim()[1] > 2
    assert {-2.0, 2.0} <= set(left.get_yticks())
    assert {line.get_ydata()[0] for line in left.lines[1:]} == {-2.0, 2.0}
    assert left.lines[0].get_color() == look("plain").colour


def test_the_spectrum_is_that_of_the_motion(drawn) -> None:
    sine = np.sin(2 * np.pi * 0.25 * STEPS)
    draw_traces({"a": trace(1.0 + 0.4 * sine), "still": trace(1.5)}, Path("x.png"))
    first, still = (drawn[0].axes[i].lines[0] for i in (1, 3))
    assert first.get_xdata()[0] > 0
    peak = np.argmax(first.get_ydata())
    assert first.get_xdata()[peak] == pytest.approx(0.25) and first.get_ydata()[
        peak
    ] == pytest.approx(0.1, rel=1e-3)
    assert (still.get_ydata() == traces.FLOOR).all()
    assert drawn[0].axes[1].get_yscale() == "log"


def test_which_dimension_and_steps_are_shown_is_said(drawn) -> None:
    draw_traces({"a": trace(0.0, 0.1 * (-1.0) ** STEPS, 0.0)}, Path("x.png"), "Hopper")
    assert drawn[0].get_suptitle() == "Hopper; action 2 of 3, which moves most"
    assert "first 200 of 300 steps" in drawn[0].axes[0].get_xlabel()
    draw_traces({"a": trace(0.0)}, Path("x.png"), "Pendulum")
    assert drawn[1].get_suptitle() == "Pendulum"


def test_every_setting_has_one_agent() -> None:
    agents = [{"eta": eta, "seed": seed} for eta in (0.0, 1.0) for seed in (3, 4)]
    zeros, bound = np.zeros((5, 1), np.float32), np.ones(1, np.float32)
    episodes = [[Episode(0, 0.0, False, zeros, zeros + i, -bound, bound)] for i in range(4)]
    found = first_episodes(Evaluation("Pendulum-v1", agents, episodes, {}), "damper")
    assert {label: float(trace.actions[0, 0]) for label, trace in found.items()} == {
        "eta=0": 0.0,
        "eta=1": 2.0,
    }


def test_the_title_says_what_is_known_of_seeds_and_the_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    titles = []
    monkeypatch.setattr(
        "damper.cli.evaluate.draw_traces",
        lambda _, path, title, period: titles.append(title) or path,
    )
    zeros, bound = np.zeros((5, 1), np.float32), np.ones(1, np.float32)
    for seed, filter in ((3, None), (-1, "low-pass:0.3")):
        episodes = [[Episode(7, 0.0, False, zeros, zeros, -bound, bound)]]
        draw_first_episodes(
            Evaluation("Pendulum-v1", [{"seed": seed}], episodes, {}),
            Path("x.png"),
            "damper",
            filter,
        )
    assert titles == [
        "Pendulum-v1, training seed 3, episode seed 7",
        "Pendulum-v1, episode seed 7, behind low-pass:0.3",
    ]


class FakeRun:
    agents = ({"seed": 0}, {"seed": 1})

    def metrics(self) -> list[dict[str, object]]:
        return [
            {"step": step, "return": [step, step + 1], "mean_change": [1.0, 2.0]}
            for step in range(10)
        ]


def test_labels_of_a_log_axis_read_alike(drawn) -> None:

    class Near(FakeRun):
        def metrics(self) -> list[dict[str, object]]:
            return [
                {"step": step, "return": [step, step], "mean_change": [0.09, 0.3]}
                for step in range(10)
            ]

    draw_curves({"plain": Near()}, Path("x.png"))
    drawn[0].draw_without_rendering()
    labels = [
        text.get_text()
        for text in drawn[0].axes[1].yaxis.get_ticklabels(which="both")
        if text.get_text()
    ]
    assert {"0.1", "0.2", "0.3"} <= set(labels) and all(float(label) for label in labels)


def test_many_shades_give_way_to_the_chosen_ones(drawn) -> None:
    for methods in (["caps", "pave"], ["plain", "caps", "pave", "asap", "damper"]):
        draw_curves({method: FakeRun() for method in methods}, Path("x.png"))  # type: ignore[dict-item]
    few, many = (
        [shade.get_facecolor()[0] for shade in figure.axes[0].collections] for figure in drawn
    )
    assert len(few) == 2 and len(many) == 2
