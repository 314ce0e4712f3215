"""Append-only training metrics: one JSON line per interval, values per agent."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from damper.engine.data.episodes import EpisodeStats
from damper.files import disk_error

EPISODE_VALUES = ("return", "length", "sm", "mean_change")


class MetricsLog:
    """The file ``metrics.jsonl`` of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sync(self) -> int:
        """Sync the file to disk and return its length in bytes, which a checkpoint records."""
        if not self.path.exists():
            return 0
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
        return self.path.stat().st_size

    def rewind(self, offset: int) -> None:
        """Truncate the file to this length: a resumed run writes the lines after it again."""
        if self.path.exists() and self.path.stat().st_size > offset:
            os.truncate(self.path, offset)

    def write(self, line: dict[str, Any]) -> None:
        """Append one line."""
        try:
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise disk_error(self.path, error) from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All complete lines of a metrics file."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def episode_means(episodes: list[EpisodeStats], n_agents: int) -> dict[str, list[float | None]]:
    """Means per agent over the episodes of an interval; None where an agent finished none."""
    rows: list[list[tuple[float, ...]]] = [[] for _ in range(n_agents)]
    for agent, *values in episodes:
        rows[agent].append(tuple(values))
    means: dict[str, list[float | None]] = {}
    for i, name in enumerate(EPISODE_VALUES):
        columns = [[values[i] for values in row] for row in rows]
        means[name] = [_number(float(np.mean(column))) if column else None for column in columns]
    return means


def _number(value: float) -> float | None:
    """None for a value that is not finite, which JSON cannot express."""
    return value if math.isfinite(value) else None


def finite(values: Mapping[str, list[float]]) -> dict[str, list[float | None]]:
    """Values per agent for a metrics line, with None for those that are not finite."""
    return {name: [_number(value) for value in row] for name, row in values.items()}
