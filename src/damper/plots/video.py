"""Policies at work, side by side.

What the environment shows, and the action trace running below.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from damper.engine.envs import EnvLike
from damper.engine.envs.gymnasium_pool import make_env
from damper.errors import DamperError, MissingExtraError
from damper.metrics import mean_change
from damper.plots.style import import_matplotlib, styled
from damper.plots.traces import Trace, busiest_dimension, draw_trace
from damper.policies.episodes import Episode
from damper.tasks import find_task

ENDINGS = (".gif", ".mp4")
RATE = 25.0  # pictures per second, or as many as the environment has steps
COLOURS = 96  # of a GIF
WIDTH, HEIGHT, BELOW, DPI = 3.2, 3.4, 1.3, 100  # inches of a column: picture, trace
GL = (
    "MuJoCo draws with OpenGL: set MUJOCO_GL=egl where there is a GPU, or install OSMesa (the "
    "system package "
    "libosmesa6) and set MUJOCO_GL=osmesa"
)


class Film(NamedTuple):
    """An episode as it looked.

    A picture ``[h, w, 3]`` after every ``stride`` steps, and its actions.
    """

    pictures: list[NDArray[np.uint8]]
    stride: int
    trace: Trace


def check_video(path: Path) -> None:
    """Refuse what cannot be written, before anything runs."""
    if path.suffix not in ENDINGS:
        raise DamperError(f"video must end in {' or '.join(ENDINGS)}, but {str(path)!r} was given.")
    import_matplotlib("video")
    if path.suffix == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                'an mp4 needs imageio and ffmpeg: pip install "damper-rl[video]", or give a name '
                "that ends in .gif."
            ) from error


def film(episode: Episode, trace: Trace, env: EnvLike, period: float | None, steps: int) -> Film:
    """Play an evaluated episode again, and look.

    Args:
        episode: what to play: its seed and the actions that were sent.
        trace: the same actions, to draw.
        env: the environment of the episode.
        period: seconds per step; a step is a picture where nobody knows it.
        steps: the most to show.
    """
    stride = max(1, round(1.0 / (RATE * period))) if period else 1
    pictures, total, actions = [], 0.0, episode.executed
    made = _drawable(env)
    try:
        made.reset(seed=episode.seed)
        for step, action in enumerate(actions):
            total += float(made.step(action)[1])
            if step % stride == 0 and step < steps:
                pictures.append(_picture(made))
    finally:
        made.close()
    if not np.isclose(total, episode.total, rtol=1e-3, atol=1e-3):
        raise DamperError(
            "env must play the same episode from the same seed and actions to be filmed, but "
            f"{_name(made)!r} gave "
            f"{total:g} instead of {episode.total:g}: use one whose only randomness is Gymnasium's."
        )
    return Film(pictures, stride, trace)


def _drawable(env: EnvLike) -> gymnasium.Env[Any, Any]:
    """The environment with a renderer."""
    spec = gymnasium.spec(find_task(env).gymnasium_id) if isinstance(env, str) else env
    follows = (
        isinstance(spec, EnvSpec)
        and _is_mujoco(spec)
        and not {"camera_id", "camera_name"} & set(spec.kwargs)
    )
    more = {"camera_name": "track"} if follows else {}
    os.environ.setdefault(
        "SDL_VIDEODRIVER", "dummy"
    )  # pictures need no screen, whose absence SDL would complain of
    try:
        return make_env(env, render_mode="rgb_array", **more)
    except DamperError as error:
        if not isinstance(env, str | EnvSpec):
            raise DamperError(
                "env must take render_mode='rgb_array' to be filmed, but its maker does not."
            ) from error
        if "'render_mode'" not in str(error):
            raise
        name = env if isinstance(env, str) else env.id
        raise DamperError(
            f"env={name!r} must take render_mode='rgb_array' to be filmed, but does not: let it "
            "draw, or leave the "
            "video out."
        ) from error


def _is_mujoco(spec: EnvSpec | None) -> bool:
    return spec is not None and ".mujoco." in str(spec.entry_point)


def _picture(env: gymnasium.Env[Any, Any]) -> NDArray[np.uint8]:
    """What the environment shows, made small."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", module="glfw"
            )  # of a missing display; the error below says what to do
            shown: Any = env.render()
        picture = Image.fromarray(np.asarray(shown, np.uint8))
    except Exception as error:  # whatever a graphics library raises where there is no graphics
        module = str(env.spec.entry_point) if env.spec else ""
        fix = (
            GL
            if ".mujoco." in module
            else 'pip install "damper-rl[video]" brings what Gymnasium draws with'
        )
        reason = (str(error) if type(error).__str__ is Exception.__str__ else "") or type(
            error
        ).__name__
        raise DamperError(
            f"env={_name(env)!r} must be drawable to be filmed, but is not here ({reason}): {fix}."
        ) from error
    share = WIDTH * DPI / picture.width
    return np.asarray(
        picture.resize((int(WIDTH * DPI), int(picture.height * share)), Image.Resampling.LANCZOS)
    )


def _name(env: gymnasium.Env[Any, Any]) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def write_video(films: Mapping[str, Film], path: Path, period: float | None = None) -> Path:
    """Write films of one environment side by side as a GIF or an MP4.

    One that ends early stays at its last picture.

    Args:
        films: by label.
        path: where to write; the ending chooses the format.
        period: seconds per step, for the speed of life and an axis in seconds.
    """
    stride = next(iter(films.values())).stride
    rate = 1.0 / (stride * period) if period else RATE
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    with styled():
        (_write_gif if path.suffix == ".gif" else _write_mp4)(_frames(films, period), part, rate)
    part.replace(path)
    return path


def _frames(films: Mapping[str, Film], period: float | None) -> Iterator[NDArray[np.uint8]]:
    """One picture of everything per moment."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, unit = (
        Figure((WIDTH * len(films), HEIGHT + BELOW), DPI, layout="constrained"),
        period or 1.0,
    )
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(films), squeeze=False, height_ratios=(HEIGHT, BELOW))
    dimension = busiest_dimension([film.trace for film in films.values()])
    length, stride = (
        max(len(film.pictures) for film in films.values()),
        next(iter(films.values())).stride,
    )
    moving = []
    for (label, film), (above, below) in zip(films.items(), axes.T, strict=True):
        actions, low, high, _ = film.trace
        moved = f"moves {100 * mean_change(actions, low, high):.1f} % of its range per step"
        above.set_title(
            f"{label}\n{moved}", loc="center", fontsize=9
        )  # which may be wider than its picture
        above.axis("off")
        draw_trace(below, film.trace._replace(actions=actions[:1]), dimension, period)
        below.set(xlim=(0, length * stride * unit), xlabel="time (s)" if period else "step")
        part = f" {dimension + 1} of {len(low)}" if len(low) > 1 else ""
        below.set_ylabel(f"action{part}" if below is axes[1, 0] else "")
        moving.append((film, above.imshow(film.pictures[0]), below.lines[0]))
    for moment in range(length):
        for film, picture, line in moving:
            picture.set_data(film.pictures[min(moment, len(film.pictures) - 1)])
            done = film.trace.actions[: (moment + 1) * stride, dimension]
            line.set_data(np.arange(len(done)) * unit, done)
        canvas.draw()
        if moment == 0:
            figure.set_layout_engine("none")  # nothing moves but the film
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _write_gif(frames: Iterator[NDArray[np.uint8]], path: Path, rate: float) -> None:
    """With few colours and no dithering: what does not move costs nothing."""
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames]
    some = np.concatenate([np.asarray(pictures[i]) for i in (0, len(pictures) // 2, -1)])
    palette = Image.fromarray(some).quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    small = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    small[0].save(
        path,
        save_all=True,
        append_images=small[1:],
        duration=round(1000 / rate),
        loop=0,
        optimize=True,
    )


def _write_mp4(frames: Iterator[NDArray[np.uint8]], path: Path, rate: float) -> None:
    import imageio.v2

    writer: Any = imageio.v2.get_writer(path, fps=rate, macro_block_size=2)
    with writer:
        for frame in frames:
            writer.append_data(frame)
