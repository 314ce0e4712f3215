"""Figures of the theory and the architecture: one matplotlib style, written atomically, byte for byte reproducible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from damper.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's colours.
INK, AXIS, GUIDE = "#2B2B2B", "#66666A", "#D8DDE3"
RETURN, TEMPORAL, PROJECTED = "#332288", "#CC6677", "#44AA99"

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "cm",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": AXIS,
    "axes.labelcolor": INK,
    "axes.labelsize": 12,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "text.color": INK,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "damper",
    "svg.fonttype": "path",
    "savefig.facecolor": "white",
    "savefig.dpi": 160,
}

# Without dates, and with the salt above, the same drawing is the same file.
METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {}, "pdf": {"CreationDate": None}}


@contextmanager
def canvas(path: Path, width: float, height: float, **style: Any) -> Iterator[Figure]:
    """A figure that is written to ``path`` (its suffix is the format) when the block ends; sizes in inches.

    ``style`` are matplotlib's settings by name, with ``_`` for the dot, over ours.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            'figures need matplotlib, which is not installed: pip install "damper-rl[plot]".'
        ) from None
    with matplotlib.rc_context(STYLE | {name.replace("_", "."): value for name, value in style.items()}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        temporary = path.with_name(f".{path.name}.part")
        suffix = path.suffix.lstrip(".")
        figure.savefig(temporary, format=suffix, metadata=METADATA[suffix])
        temporary.replace(path)
