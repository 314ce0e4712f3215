"""One measurement in several execution modes, and the modes that do not pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from damper.methods import METHODS
from paper.bench.result import Measurement, text
from paper.bench.workloads import ExecutionMode

BASELINE_MODE = {"compile-graph": "graph", "compile": "eager", "TF32": "float32"}
NOISE = 1.03  # repeated measurements of one update differ by a smaller factor


def in_modes(
    modes: Sequence[ExecutionMode], measure: Callable[[ExecutionMode], Measurement]
) -> Measurement:
    """Measure in each mode; with several modes, every row names its own."""
    parts = [measure(mode) for mode in modes]
    if len(parts) == 1:
        return parts[0]
    rows: list[dict[str, Any]] = []
    for mode, part in zip(modes, parts, strict=True):
        for row in part.rows:
            first = {name: row[name] for name in ("backbone", "method")}
            rows.append({**first, "mode": mode.mode, "precision": mode.precision, **row})
    names = {"mode": [mode.mode for mode in modes], "tf32": [mode.tf32 for mode in modes]}
    return replace(parts[0], rows=rows, how={**parts[0].how, **names})


def slower_modes(measurement: Measurement) -> list[str]:
    """One sentence per row that is slower than the same update in a plainer mode or in float32."""
    ours = [row for row in measurement.rows if "mode" in row and row["method"] in METHODS]
    if not ours:
        return []
    columns = measurement.columns[: measurement.columns.index("ms")]
    names = [name for name in columns if name not in ("mode", "precision")]
    times = {_key(row, names): row["ms"] for row in ours}
    sentences = []
    for row in ours:
        for column in ("mode", "precision"):
            baseline = {**row, column: BASELINE_MODE.get(row.get(column, ""))}
            other = times.get(_key(baseline, names))
            if other is not None and row["ms"] > NOISE * other:
                what = [f"{row[name]}{' agents' * (name == 'agents')}" for name in names]
                sentences.append(
                    f"{', '.join(what)}: {row['mode']} in {row['precision']} takes "
                    f"{text(row['ms'])} ms, {baseline['mode']} in {baseline['precision']} "
                    f"{text(other)} ms"
                )
    return sentences


def _key(row: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in (*names, "mode", "precision"))
