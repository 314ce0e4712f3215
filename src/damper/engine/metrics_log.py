"""Append-only training metrics: one JSON line per interval, values per agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from damper.engine.episodes import Episode
from damper.engine.files import disk_error
from damper.engine.population import DIAGNOSTICS, Population

EPISODE_VALUES = ("return", "length", "sm", "change")


class MetricsLog:
    """The file ``metrics.jsonl`` of a run; ``offset`` marks what a checkpoint vouches for."""

    def __init__(self, path: Path) -> None:
        """Nothing is written before the first line."""
        self.path = path

    @property
    def offset(self) -> int:
        """Bytes written so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def rewind(self, offset: int) -> None:
        """Forget lines that a resumed run will write again."""
        if self.path.exists():
            os.truncate(self.path, offset)

    def write(self, line: dict[str, Any]) -> None:
        """Append one line."""
        try:
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise disk_error(self.path, error) from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a metrics file."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def episode_means(episodes: list[Episode], agents: int) -> dict[str, list[float | None]]:
    """Means per agent over the episodes of an interval; None where an agent finished none."""
    table: list[list[Episode]] = [[] for _ in range(agents)]
    for episode in episodes:
        table[episode.agent].append(episode)
    columns = {name: i + 1 for i, name in enumerate(EPISODE_VALUES)}
    return {
        name: [float(np.mean([e[i] for e in own])) if own else None for own in table] for name, i in columns.items()
    }


def take_diagnostics(population: Population) -> dict[str, list[float]]:
    """Means per agent of what the updates saw since last asked; waits for the device."""
    sums, counts = population.state["diagnostics"].tolist(), population.state["diagnosed"].tolist()
    population.state["diagnostics"].zero_()
    population.state["diagnosed"].zero_()
    means = {}
    for name, row in zip(DIAGNOSTICS, sums, strict=True):
        count = counts[0] if name == "critic_loss" else counts[1]
        if count and any(row):
            means[name] = [value / count for value in row]
    return means
