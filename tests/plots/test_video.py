"""Films of policies at work."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv

import damper
from damper.cli import main
from damper.errors import DamperError, MissingExtraError
from damper.plots.episodes import film_evaluations, first_episodes
from damper.plots.video import DPI, WIDTH, Film, _frames, check_video

pytest.importorskip("pygame")
Figure = pytest.importorskip("matplotlib.figure").Figure
Image, ImageSequence = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageSequence")


def still(obs: np.ndarray) -> np.ndarray:
    return np.zeros((len(obs), 1), np.float32)


def shaking(obs: np.ndarray) -> np.ndarray:
    return 2 * np.sign(obs[:, 2:] + 1e-9).astype(np.float32)


def frames(path: Path) -> list[np.ndarray]:
    with Image.open(path) as film:
        return [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]


def test_two_policies_side_by_side_with_their_traces(tmp_path: Path) -> None:
    both = {
        name: damper.evaluate(act, "Pendulum-v1", 1)
        for name, act in (("plain", shaking), ("damper", still))
    }
    path = film_evaluations(both, tmp_path / "new" / "film.gif", steps=6)
    shown = frames(path)
    assert len(shown) == 6 and shown[0].shape[1] == 640
    below, halves = 340, (slice(0, 320), slice(320, 640))
    for half in halves:  # the pendulum moves above, the traces run below
        assert not np.array_equal(shown[0][:below, half], shown[-1][:below, half])
        assert not np.array_equal(shown[0][below:, half], shown[-1][below:, half])
    assert [other.name for other in path.parent.iterdir()] == ["film.gif"]


def test_the_command_films_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--net-arch", "8", "--steps", "60", "--learning-starts", "50", "--batch-size", "8"]
    main(["train", "Pendulum-v1", "--eta", "0", "1", *tiny, "--out", str(tmp_path / "run")])
    film = tmp_path / "film.gif"
    main(
        [
            "evaluate",
            str(tmp_path / "run"),
            "--episodes",
            "1",
            "--video",
            str(film),
            "--video-steps",
            "3",
        ]
    )
    assert f"video: {film}" in capsys.readouterr().out
    assert len(frames(film)) == 3


def test_titles_fit_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    draw = Figure.draw
    monkeypatch.setattr(
        Figure, "draw", lambda figure, *given: (drawn.append(figure), draw(figure, *given))
    )
    evaluation = damper.evaluate(still, "Pendulum-v1", 1)
    trace = first_episodes(evaluation, "damper")["all"]
    shown = Film([np.zeros((8, 8, 3), np.uint8)], 1, trace)
    next(_frames({"damper eta=0.5": shown, "unconditional-projection": shown}, 0.05))
    figure = drawn[0]
    for axis in figure.axes[:2]:
        box = axis.title.get_window_extent()
        assert box.width < WIDTH * DPI and box.x0 >= 0 and box.x1 <= figure.bbox.width, (
            axis.get_title()
        )


def test_mp4(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    evaluation = damper.evaluate(still, "Pendulum-v1", 1)
    path = film_evaluations({"damper": evaluation}, tmp_path / "film.mp4", steps=4)
    assert path.read_bytes()[4:8] == b"ftyp"


def test_what_cannot_be_written_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DamperError, match=r"video must end in \.gif or \.mp4, but 'film.avi' was given"
    ):
        check_video(Path("film.avi"))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(
        MissingExtraError, match=r"damper-rl\[video\]\", or give a name that ends in .gif"
    ):
        check_video(Path("film.mp4"))


def test_an_environment_that_cannot_be_drawn_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = damper.evaluate(still, "Pendulum-v1", 1)

    def fail(_: object) -> None:
        raise gymnasium.error.DependencyNotInstalled("no screen")

    monkeypatch.setattr("gymnasium.envs.classic_control.pendulum.PendulumEnv.render", fail)
    with pytest.raises(
        DamperError, match=r"env='Pendulum-v1' must be drawable to be filmed, but is not here"
    ):
        film_evaluations({"damper": evaluation}, tmp_path / "film.gif", steps=2)
    pytest.importorskip("mujoco")
    monkeypatch.setattr("gymnasium.envs.mujoco.mujoco_env.MujocoEnv.render", fail)
    hopper = damper.evaluate(lambda obs: np.zeros((len(obs), 3), np.float32), "Hopper-v5", 1)
    with pytest.raises(DamperError, match=r"MUJOCO_GL=egl where there is a GPU, or install OSMesa"):
        film_evaluations({"damper": hopper}, tmp_path / "film.gif", steps=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("default")
def test_a_missing_display_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    def warn(_: object) -> None:
        warnings.warn_explicit("no DISPLAY", UserWarning, "glfw/__init__.py", 1, module="glfw")
        raise RuntimeError("no screen")

    monkeypatch.setattr("gymnasium.envs.classic_control.pendulum.PendulumEnv.render", warn)
    with pytest.raises(DamperError, match="no screen"):
        film_evaluations(
            {"damper": damper.evaluate(still, "Pendulum-v1", 1)}, tmp_path / "film.gif", steps=2
        )
    assert "no DISPLAY" not in [str(one.message) for one in recwarn]


class Dice(gymnasium.Wrapper):
    """Rewards that no seed decides."""

    def step(self, action):
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, float(np.random.default_rng().normal()), terminated, truncated, info


def dice(**kwargs):
    return Dice(gymnasium.make("Pendulum-v1", **kwargs))


def test_another_episode_than_the_measured_one_is_no_film_of_it(tmp_path: Path) -> None:
    evaluation = damper.evaluate(still, dice, 1)
    with pytest.raises(
        DamperError, match="env must play the same episode from the same seed and actions"
    ):
        film_evaluations({"damper": evaluation}, tmp_path / "film.gif", dice, steps=2)


def test_a_maker_without_a_renderer_is_told(tmp_path: Path) -> None:
    evaluation = damper.evaluate(still, lambda: gymnasium.make("Pendulum-v1"), 1)
    with pytest.raises(DamperError, match="env must take render_mode='rgb_array' to be filmed"):
        film_evaluations(
            {"damper": evaluation}, tmp_path / "film.gif", lambda: gymnasium.make("Pendulum-v1")
        )


class Blind(PendulumEnv):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self) -> None:
        super().__init__()


@pytest.mark.filterwarnings(
    "ignore:.*render_mode='rgb_array' that is not in the possible render_modes"
)
def test_an_id_without_a_renderer_is_told(tmp_path: Path) -> None:
    gymnasium.register("Blind-v0", Blind, max_episode_steps=5)
    try:
        evaluation = damper.evaluate(still, "Blind-v0", 1)
        with pytest.raises(
            DamperError, match="env='Blind-v0' must take render_mode='rgb_array' to be filmed"
        ):
            film_evaluations({"damper": evaluation}, tmp_path / "film.gif")
    finally:
        del gymnasium.registry["Blind-v0"]
