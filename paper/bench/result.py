"""A measurement's rows as a table, a plot, and a file with hardware and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from damper.errors import DamperError
from damper.files import write_json
from damper.plots.style import FAINT, GREY, LOOKS, draw_all
from damper.provenance import code_version, hardware, versions
from damper.tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Measurement:
    """One measurement.

    Attributes:
        scope: what is inside the timed interval.
        rows: column -> value; a column may be missing in some rows.
        bars: the columns that the plot shows; the columns before the first of them label the bars.
        how: device, mode, number format, threads, iterations.
    """

    name: str
    title: str
    scope: str
    rows: list[dict[str, Any]]
    bars: tuple[str, ...]
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """All columns, in order of first appearance."""
        return list(dict.fromkeys(column for row in self.rows for column in row))

    @property
    def cells(self) -> list[list[str]]:
        """Every row's values as text, in the order of the columns."""
        return [[text(row.get(column)) for column in self.columns] for row in self.rows]

    def markdown(self) -> str:
        """The rows as a Markdown table."""
        return markdown_table(self.columns, self.cells)

    def save(self, folder: Path, command: str) -> list[Path]:
        """Write ``<name>.json`` and, with matplotlib, ``<name>.png``."""
        record = {**asdict(self), "command": command, **code_version(), "versions": versions()}
        record["hardware"] = hardware(str(self.how.get("device", "cpu")))
        path = folder / f"{self.name}.json"
        write_json(path, record)
        drawable = find_spec("matplotlib") is not None
        return [path, *(draw_all({self.name: self._draw}, folder, ["png"]) if drawable else ())]

    def _draw(self, figure: Figure) -> None:
        """Draw a row of panels per backbone and a panel per measured column."""
        before_bars = self.columns[: self.columns.index(self.bars[0])]
        names = [name for name in before_bars if name != "backbone"]
        by_backbone: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            by_backbone.setdefault(str(row.get("backbone", "")), []).append(row)
        heights = [1.0 + 0.3 * len(rows) for rows in by_backbone.values()]
        figure.set_size_inches(1.0 + 4.0 * len(self.bars), 0.4 + sum(heights))
        shape = len(by_backbone), len(self.bars)
        panels = figure.subplots(*shape, height_ratios=heights, squeeze=False, sharex="col")
        for line, (backbone, rows) in zip(panels, by_backbone.items(), strict=True):
            labels = [" ".join(text(row.get(name)) for name in names) for row in rows]
            colours = [_colour(label) for label in labels]
            for axes, column in zip(line, self.bars, strict=True):
                values = [row.get(column) for row in rows]
                bars = axes.barh(range(len(rows)), [v or 0.0 for v in values], color=colours)
                axes.bar_label(bars, list(map(text, values)), padding=3, fontsize=8, color=GREY)
                axes.set(title=backbone, xlabel=column, yticks=range(len(rows)), yticklabels=labels)
                axes.margins(x=0.15)
                numbers = [row[column] for row in self.rows if row.get(column)]
                if numbers and max(numbers) > 20 * min(numbers):
                    axes.set(xscale="log", xlabel=f"{column} (log scale)")
                axes.invert_yaxis()
        figure.suptitle(self.title)


def _colour(label: str) -> str:
    """The colour of the last method named in a bar's label."""
    methods = [word for word in label.replace(",", " ").split() if word in LOOKS]
    return LOOKS[methods[-1]].colour if methods else FAINT


def read(path: Path) -> Measurement:
    """Read a saved measurement."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        fields = {name: content[name] for name in ("name", "title", "scope", "rows", "how")}
        return Measurement(**fields, bars=tuple(content["bars"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamperError(
            f"{path} must be a file that `python -m paper bench` wrote, but cannot be read: "
            f"{error!r}."
        ) from error


def text(value: Any) -> str:
    """A value as text, floats to three significant digits (whole numbers from 1,000 on)."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
    return "" if value is None else str(value)
