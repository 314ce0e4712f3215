"""All figures: one style, one colour, marker and dash per method.

Colours are told apart by colour-blind readers (they lean on Okabe and Ito's), markers and dashes
also in grey.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from damper.errors import DamperError, MissingExtraError
from damper.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[["Figure"], None]  # sets the size of an empty figure and fills it
INK, GREY = "#2b2b2b", "#475569"  # text; axes and notes
FAINT, GUIDE = "#94a3b8", "#d8dde3"  # lines; lines behind others
DPI = 150
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.formatter.useoffset": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "lines.solid_capstyle": "round",
    "savefig.dpi": DPI,
    "svg.fonttype": "none",  # words stay words: small, found by a search, read aloud
    "svg.hashsalt": "damper",
}
# Nothing in a file may depend on when or by which release it was drawn.
METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def import_matplotlib(extra: str = "plot") -> Any:
    """Matplotlib, or the sentence that says which extra brings it."""
    try:
        import matplotlib
    except ImportError as error:
        fix = f'pip install "damper-rl[{extra}]"'
        raise MissingExtraError(f"figures need matplotlib: {fix}.") from error
    return matplotlib


def styled(rc: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """A block in which ``STYLE``, and over it ``rc``, are matplotlib's settings."""
    return import_matplotlib().rc_context(STYLE | dict(rc or {}))


@contextmanager
def saved_figure(*paths: Path, rc: Mapping[str, Any] | None = None) -> Iterator[Figure]:
    """An empty figure, ``styled``, that is written to every path when the block ends."""
    formats = [path.suffix.removeprefix(".") for path in paths]
    if unknown := [name for name in formats if name not in METADATA]:
        listed = ", ".join(METADATA)
        raise DamperError(f"formats must be among {listed}, but {unknown[0]} was given.")
    with styled(rc):
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        yield figure
        for path, name in zip(paths, formats, strict=True):
            file = BytesIO()
            figure.savefig(file, format=name, metadata=METADATA[name])
            write_bytes(path, file.getvalue())


def draw_all(
    figures: Mapping[str, Draw],
    folder: Path,
    formats: Sequence[str],
    rc: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write each figure to ``<folder>/<name>.<format>``, in every format; returns the paths."""
    files = {name: [folder / f"{name}.{ending}" for ending in formats] for name in figures}
    for name, paths in files.items() if formats else ():
        with saved_figure(*paths, rc=rc) as figure:
            figures[name](figure)
    return [path for paths in files.values() for path in paths]


class Look(NamedTuple):
    """A method's colour, marker and dashes (on, off, ...; none for a solid line)."""

    colour: str
    marker: str
    dashes: tuple[float, ...] = ()

    @property
    def line(self) -> dict[str, Any]:
        """As a plotted line takes it."""
        return {"color": self.colour, "linestyle": (0, self.dashes) if self.dashes else "-"}


# The report's page has the same in page/style.css and page/chart.js; a test compares them.
LOOKS = {
    "plain": Look("#6b7280", "s", (4, 1.5)),
    "caps": Look("#2f9bd6", "^", (6, 2)),
    "grad-caps": Look("#00916a", "D", (1, 1)),
    "asap": Look("#c98a00", "v", (3, 1, 1, 1)),
    "l2c2": Look("#c8699b", "P", (6, 1, 1, 1)),
    "pave": Look("#cf5a00", "X", (2, 1)),
    "damper": Look("#4f3be0", "o"),
    "pegrad": Look("#7a1f5c", "<", (5, 1)),
    "unconditional-sum": Look("#5b8c1a", ">", (3, 2)),
    "unconditional-projection": Look("#1f5fa8", "h", (4, 1, 1, 1, 1, 1)),
    "scalarization": Look("#334155", "p", (1, 2)),
}
_OTHERS = (
    Look("#117733", "d", (2, 2)),
    Look("#882255", "*", (5, 3)),
    Look("#8a8a1f", "8", (3, 1)),
    Look("#2b7f76", "H", (1, 1.5)),
    Look("#a14a5a", "4", (6, 3)),
    Look("#7c5e3c", "3", (2, 1, 1, 1)),
)


def look(method: str) -> Look:
    """The method's look, the same in every picture; one of a few for methods not in the paper."""
    return LOOKS.get(method) or _OTHERS[zlib.crc32(method.encode()) % len(_OTHERS)]


def shades(method: str, count: int) -> list[Look]:
    """Looks for several settings of one method, from light to its own colour, dashes differing."""
    usual, dashes = look(method), ((1, 1), (3, 1), (5, 2), (3, 1, 1, 1), (6, 1, 1, 1), ())
    if count == 1:
        return [usual]
    looks = []
    for i in range(count):
        colour = mix(usual.colour, "#ffffff", 0.6 * (1 - i / (count - 1)))
        looks.append(Look(colour, usual.marker, dashes[(i - count) % len(dashes)]))
    return looks


def mix(first: str, second: str, share: float) -> str:
    """The colour that is the other one by a share, 0 to 1; all ``#rrggbb``."""
    channels = zip(bytes.fromhex(first[1:]), bytes.fromhex(second[1:]), strict=True)
    return "#" + "".join(f"{round((1 - share) * a + share * b):02x}" for a, b in channels)


def draw_curve(
    axis: Any,
    steps: Sequence[int] | NDArray[Any],
    values: NDArray[Any],
    look: Look,
    label: str,
    band: bool,
    strong: bool,
) -> None:
    """A line of means with a few markers; ``values`` are mean, lowest and highest, ``[3, T]``.

    ``band`` shades the range; a ``strong`` line is thicker and above the others.
    """
    mean, low, high = values
    if band:
        axis.fill_between(steps, low, high, color=look.colour, alpha=0.18, linewidth=0)
    marked = None
    if len(steps) > 8:
        marked = np.linspace(0, len(steps) - 1, 6).round().astype(int)[1:-1].tolist()
    width, height = (1.8, 3) if strong else (1.1, 2)
    marks = {"marker": look.marker, "markersize": 4, "markevery": marked}
    axis.plot(steps, mean, **look.line, **marks, label=label, linewidth=width, zorder=height)


def plain_log_ticks(axis: Any) -> None:
    """Numbers as people write them, few enough not to touch, on a logarithmic axis with data."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    choices = {4: (1.0, 1.5, 2.0, 3.0, 5.0), 30: (1.0, 2.0, 5.0), 1000: (1.0, 3.0)}
    steps = next((steps for ratio, steps in choices.items() if high / low < ratio), (1.0,))
    axis.set_major_locator(ticker.LogLocator(subs=steps))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())
