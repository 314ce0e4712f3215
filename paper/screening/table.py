"""The screening's rows as data in ``results/screening.jsonl``, and as tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Row = Mapping[str, Any]
CURVES = ("cosine", "average_cosine", "rho_previous", "norm_ratio", "length")
POINTS = 10


def collect(folders: Iterable[Path], target: Path) -> int:
    """Write the rows of several blocks, one line each, sorted; curves thinned to ``POINTS``."""
    rows = []
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            shared = {"versions": content["versions"], "hardware": content["hardware"]}
            rows += [{**_thinned(row), **shared} for row in content["rows"]]
        for file in sorted(folder.glob("*.jsonl")):
            rows += [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    lines = sorted(json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    target.write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)), encoding="utf-8")
    return len(lines)


def _thinned(row: Row) -> dict[str, Any]:
    """A population's row with a few points of the curves that tell a rule's state."""
    kept = {name: value for name, value in row.items() if name not in ("curve", "memory")}
    memory = row.get("memory") or {}
    for name in (name for name in CURVES if name in memory):
        values = memory[name]
        chosen = [values[i * (len(values) - 1) // (POINTS - 1)] for i in range(POINTS)]
        kept[f"{name}_curve"] = [float(f"{value:.4g}") for value in chosen]
    return kept


def tables(rows: Iterable[Row]) -> str:
    """One Markdown table per population: return, change of the action, constant agents."""
    populations: dict[str, list[Row]] = {}
    for row in rows:
        title = f"{row['task']}, {row['backbone']}, {row['steps']:,} steps"
        populations.setdefault(title, []).append(row)
    parts = []
    for title, members in sorted(populations.items()):
        lines = [f"## {title}", "", "| variant | seeds | return | mean \\|Δa\\| | constant |"]
        lines.append("| --- | ---: | ---: | ---: | ---: |")
        for variant in dict.fromkeys(row["variant"] for row in members):
            agents = [row for row in members if row["variant"] == variant]
            mean = np.mean([row["return"] for row in agents])
            change = math.exp(np.mean([math.log(max(row["mean_change"], 1e-9)) for row in agents]))
            constant = sum(row["constant"] for row in agents)
            lines.append(f"| {variant} | {len(agents)} | {mean:.4g} | {change:.4f} | {constant} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def read(path: Path) -> list[dict[str, Any]]:
    """The rows on record."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
