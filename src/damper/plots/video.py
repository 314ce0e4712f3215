"""Videos of policies side by side, with the action trace running below each."""

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
    "system package libosmesa6) and set MUJOCO_GL=osmesa"
)


class Film(NamedTuple):
    """Pictures ``[h, w, 3]`` of an episode, one after every ``stride`` steps, and its actions."""

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
    """Play an evaluated episode again, from its seed and actions, and take pictures.

    Without a ``period``, the seconds per step, every step is a picture; ``steps`` is the most to
    show.
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
            f"{_name(made)!r} gave {total:g} instead of {episode.total:g}: use one whose only "
            "randomness is Gymnasium's."
        )
    return Film(pictures, stride, trace)


def _drawable(env: EnvLike) -> gymnasium.Env[Any, Any]:
    spec = gymnasium.spec(find_task(env).gymnasium_id) if isinstance(env, str) else env
    more = {}
    if isinstance(spec, EnvSpec) and _is_mujoco(spec):
        # A camera that follows the robot, unless another one was chosen.
        more = {} if {"camera_id", "camera_name"} & set(spec.kwargs) else {"camera_name": "track"}
    # Pictures need no screen, whose absence SDL would complain of.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        return make_env(env, render_mode="rgb_array", **more)
    except DamperError as error:
        if isinstance(env, str | EnvSpec) and "'render_mode'" not in str(error):
            raise
        name = "" if callable(env) else f"={getattr(env, 'id', env)!r}"
        raise DamperError(
            f"env{name} must take render_mode='rgb_array' to be filmed, but does not: let it draw, "
            "or leave the video out."
        ) from error


def _is_mujoco(spec: EnvSpec | None) -> bool:
    return spec is not None and ".mujoco." in str(spec.entry_point)


def _picture(env: gymnasium.Env[Any, Any]) -> NDArray[np.uint8]:
    """What the environment shows, made small."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # glfw's warning of a missing display; the error below says what to do.
            warnings.filterwarnings("ignore", module="glfw")
            shown: Any = env.render()
        picture = Image.fromarray(np.asarray(shown, np.uint8))
    except Exception as error:  # whatever a graphics library raises where there is no graphics
        fix = 'pip install "damper-rl[video]" brings what Gymnasium draws with'
        if _is_mujoco(env.spec):
            fix = GL
        message = str(error) if type(error).__str__ is Exception.__str__ else ""
        raise DamperError(
            f"env={_name(env)!r} must be drawable to be filmed, but is not here "
            f"({message or type(error).__name__}): {fix}."
        ) from error
    width = int(WIDTH * DPI)
    height = int(picture.height * WIDTH * DPI / picture.width)
    return np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS))


def _name(env: gymnasium.Env[Any, Any]) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def write_video(films: Mapping[str, Film], path: Path, period: float | None = None) -> Path:
    """Write films of one environment, by label, side by side as a GIF or an MP4.

    One that ends early stays at its last picture. ``period``, the seconds per step, sets the speed.
    """
    stride = next(iter(films.values())).stride
    rate = 1.0 / (stride * period) if period else RATE
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    write = _write_gif if path.suffix == ".gif" else _write_mp4
    with styled():
        write(_frames(films, period), part, rate)
    part.replace(path)
    return path


def _frames(films: Mapping[str, Film], period: float | None) -> Iterator[NDArray[np.uint8]]:
    """One picture of everything per moment."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((WIDTH * len(films), HEIGHT + BELOW), DPI, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(films), squeeze=False, height_ratios=(HEIGHT, BELOW))
    dimension = busiest_dimension([film.trace for film in films.values()])
    length, unit = max(len(film.pictures) for film in films.values()), period or 1.0
    stride = next(iter(films.values())).stride
    moving = []
    for (label, film), (above, below) in zip(films.items(), axes.T, strict=True):
        actions, low, high, _ = film.trace
        moved = f"moves {100 * mean_change(actions, low, high):.1f} % of its range per step"
        above.set_title(f"{label}\n{moved}", loc="center", fontsize=9)
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
    options: dict[str, Any] = {"duration": round(1000 / rate), "loop": 0, "optimize": True}
    small[0].save(path, save_all=True, append_images=small[1:], **options)


def _write_mp4(frames: Iterator[NDArray[np.uint8]], path: Path, rate: float) -> None:
    import imageio.v2

    writer: Any = imageio.v2.get_writer(path, fps=rate, macro_block_size=2)
    with writer:
        for frame in frames:
            writer.append_data(frame)
