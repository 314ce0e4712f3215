"""What a measurement found: rows of numbers as a table, a plot, and a file with hardware and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from damper.engine.run.files import write_bytes
from damper.engine.run.provenance import code, hardware, versions
from damper.errors import DamperError


@dataclass(frozen=True)
class Found:
    """One measurement.

    Attributes:
        name: of the file.
        title: for people.
        scope: what is inside the timed interval.
        rows: column -> value; a column may be missing in some rows.
        bars: the columns that the plot shows; the others before the first of them name the bar.
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
        """Every row's values in the order of the columns, as people read them."""
        return [[text(row.get(column)) for column in self.columns] for row in self.rows]

    def markdown(self) -> str:
        """For a page."""
        lines = [self.columns, ["---"] * len(self.columns), *self.cells]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def save(self, folder: Path, command: str) -> list[Path]:
        """``<name>.json`` with hardware, versions, code and command, and ``<name>.png`` where matplotlib is there."""
        record: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "scope": self.scope,
            "rows": self.rows,
            "how": dict(self.how),
        }
        record |= {"bars": list(self.bars), "command": command, **code(), "versions": versions()}
        record["hardware"] = hardware(str(self.how.get("device", "cpu")))
        path = folder / f"{self.name}.json"
        write_bytes(path, (json.dumps(record, indent=1) + "\n").encode())
        return [path, *self._plot(folder / f"{self.name}.png")]

    def _plot(self, path: Path) -> list[Path]:
        if find_spec("matplotlib") is None:
            return []
        from matplotlib.figure import Figure

        names = self.columns[: self.columns.index(self.bars[0])]
        labels = [" ".join(text(row.get(name)) for name in names) for row in self.rows]
        figure = Figure(figsize=(4.0 * len(self.bars), 1.0 + 0.28 * len(labels)), layout="constrained")
        for axes, column in zip(figure.subplots(1, len(self.bars), squeeze=False)[0], self.bars, strict=True):
            axes.barh(labels, [row.get(column) or 0.0 for row in self.rows])
            axes.invert_yaxis()
            axes.set_xlabel(column)
        figure.suptitle(self.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
        return [path]


def read(path: Path) -> Found:
    """A saved measurement."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        fields = {name: content[name] for name in ("name", "title", "scope", "rows", "how")}
        return Found(**fields, bars=tuple(content["bars"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamperError(f"{path} must be a file that `damper bench` wrote, but cannot be read: {error!r}.") from error


def text(value: Any) -> str:
    """A cell: numbers to three digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
    return "" if value is None else str(value)
