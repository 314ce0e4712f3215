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
        """The file is made when the first line is written."""
        self.path = path

    def sync(self) -> int:
        """Sync the file to disk and return its length in bytes, which a checkpoint records."""
        if not self.path.exists():
            return 0
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
        return self.path.stat().st_size

    def rewind(self, offset: int) -> None:
        """Truncate the file to this length, because a resumed run writes the lines after its checkpoint again."""
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
    table: list[list[EpisodeStats]] = [[] for _ in range(n_agents)]
    for episode in episodes:
        table[episode.agent].append(episode)
    return {
        name: [_number(float(np.mean([e[i] for e in own]))) if own else None for own in table]
        for i, name in enumerate(EPISODE_VALUES, start=1)
    }


def _number(value: float) -> float | None:
    """None for a value that is not finite, which JSON cannot express."""
    return value if math.isfinite(value) else None


def finite(values: Mapping[str, list[float]]) -> dict[str, list[float | None]]:
    """Values per agent for a metrics line, with None for those that are not finite."""
    return {name: [_number(value) for value in own] for name, own in values.items()}
