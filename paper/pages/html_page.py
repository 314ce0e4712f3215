"""One self-contained HTML page: style, script and data inline, nothing fetched from anywhere.

Its data is a pure function of the records, rounded to the digits that can be seen.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from damper.metrics import SMOOTHNESS
from damper.tasks import PAPER_TASKS
from damper.terminal import counted
from paper.claims.verdicts import Verdict, time_verdicts, verdicts
from paper.experiments.catalogue import BACKBONES, ETAS, ONE_ETA, TABLE_METHODS, WEIGHTS
from paper.experiments.printed import printed, title
from paper.experiments.records import DIAGNOSTIC_CURVES, round_digits
from paper.experiments.store import Record
from paper.experiments.timings import Timing
from paper.statistics.cells import MEASURES, Cell, Setup
from paper.statistics.estimates import nan_for_none
from paper.tables.claims import MEANINGS, caution
from paper.tables.result_tables import (
    COST_HEADER,
    ONE_ETA_LABEL,
    SPEED_HEADER,
    aggregates,
    best_cells,
    code_versions,
    cost_tables,
    speed_rows,
)

SCRIPTS = ("core.js", "chart.js", "results.js", "pictures.js", "sweeps.js", "main.js")


def page(data: dict[str, Any]) -> str:
    """The page that shows ``page_data``'s result."""
    # A "<" in the data could end the script element; JSON may write it as an escape instead.
    text = json.dumps(
        data, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
    )
    parts = {
        "style": _read("style.css"),
        "script": "".join(map(_read, SCRIPTS)),
        "data": text.replace("<", "\\u003c"),
    }
    out = _read("page.html")
    for name, content in parts.items():
        out = out.replace(f"@@{name}@@", content)
    return out


def _read(name: str) -> str:
    return files("paper.pages").joinpath("html", name).read_text(encoding="utf-8")


def page_data(every_setup: Sequence[Setup], timings: Sequence[Timing]) -> dict[str, Any]:
    """Everything that the page needs; provenance is kept once and referred to by number."""
    sources: list[dict[str, Any]] = []
    timed = time_verdicts(timings)
    cost = [
        {"caption": table.caption, "header": COST_HEADER, "rows": table.rows}
        for table in cost_tables(timings)
    ]
    return {
        "setups": [_setup(setup, every_setup, sources) for setup in every_setup],
        "sources": sources,
        "measures": MEASURES,
        "order": list(MEASURES),
        "table": list(TABLE_METHODS),
        "etas": list(ETAS),
        "weights": list(WEIGHTS),
        "oneEta": {"eta": ONE_ETA, "label": ONE_ETA_LABEL},
        "meanings": MEANINGS,
        "caution": caution(),
        "cost": cost,
        "timeClaims": [_claim(verdict) for verdict in timed]
        if any(verdict.known for verdict in timed)
        else [],
    }


def _claim(verdict: Verdict, one: Verdict | None = None) -> dict[str, Any]:
    """A claim; judged with η = 1 as well where that makes a difference to what is compared."""
    checks = [[check.text, check.verdict] for check in verdict.checks]
    content = {"verdict": verdict.verdict, "checks": checks}
    other = _claim(one) if one and one.checks != verdict.checks else None
    return {"id": verdict.id, "text": verdict.text, "note": verdict.note, **content, "one": other}


def _setup(setup: Setup, every: Sequence[Setup], sources: list[dict[str, Any]]) -> dict[str, Any]:
    judged, best = (
        list(zip(verdicts(setup), verdicts(setup, ONE_ETA), strict=True)),
        best_cells(setup),
    )
    return {
        "key": setup.key,
        "title": setup.title,
        "protocol": setup.protocol,
        "custom": bool(setup.deviations),
        "agents": setup.agents,
        "episodes": setup.episodes,
        "others": [
            f"{counted(other.agents, 'agent')}: {other.title}"
            for other in every
            if other is not setup
        ],
        "cells": [_cell(setup, cell, sources, best) for cell in setup.cells],
        "claims": [_claim(*both) for both in judged]
        if any(verdict.known or at_one_eta.known for verdict, at_one_eta in judged)
        else [],
        "code": {
            backbone: {
                task: code_versions(
                    c for c in setup.published if (c.backbone, c.task) == (backbone, task)
                )
                for task in setup.tasks(backbone)
            }
            for backbone in BACKBONES
        },
        "aggregates": [
            {
                "backbone": a.backbone,
                "measure": a.measure,
                "method": a.method,
                "tasks": a.tasks,
                "changeTasks": a.change_tasks,
                "improvement": rounded(a.improvement),
                "change": rounded(a.change) if a.change else None,
            }
            for a in aggregates(setup)
        ],
        "speed": {"header": SPEED_HEADER, "rows": speed_rows(setup)},
    }


def _cell(
    setup: Setup, cell: Cell, sources: list[dict[str, Any]], best: Mapping[str, Sequence[Cell]]
) -> dict[str, Any]:
    papers = {
        name: printed(cell.backbone, cell.method, cell.task, name) for name in ("return", "sm")
    }
    published = cell in setup.published
    return {
        "backbone": cell.backbone,
        "task": cell.task,
        "method": cell.method,
        "title": title(cell.method, cell.backbone),
        "label": cell.label,
        "settings": cell.settings,
        "published": published,
        "oneEta": cell.task in PAPER_TASKS
        and cell is setup.find(cell.backbone, cell.task, "damper", eta=ONE_ETA),
        "seeds": cell.seeds,
        "frozen": cell.frozen,
        "constant": cell.constant,
        "mostlyConstant": cell.mostly_constant,
        "best": [name for name, cells in best.items() if cell in cells],
        "values": {name: values for name in MEASURES if (values := _values(cell, name))},
        "paper": {name: list(value) for name, value in papers.items() if value and published},
        "agents": [_agent(record, sources) for record in cell.records],
        "curve": _curve(cell),
        "traces": [
            trace for record in cell.records if published and (trace := _trace(record)) is not None
        ],
    }


def _values(cell: Cell, measure: str) -> list[float | None]:
    """Mean, both spreads, interval and median."""
    s = cell.summary(measure)
    if s is None:
        return []
    spread = (s.over_seeds, s.pooled, *(s.interval or (None, None)))
    shown = (None,) * 4 if cell.mostly_constant and measure in SMOOTHNESS else spread
    # More digits than are shown: rounded twice, a last digit could differ from the tables'.
    return rounded((s.mean, *shown, s.median), 9)


def _agent(record: Record, sources: list[dict[str, Any]]) -> dict[str, Any]:
    """One seed's means, and where they came from."""
    source = {
        "command": record.command,
        "commit": record.commit,
        "code": record.code,
        "versions": dict(record.versions),
        "hardware": dict(record.hardware),
    }
    if source not in sources:
        sources.append(source)
    means = {name: _mean(record.episodes[name]) for name in MEASURES}
    run = {
        name: record.run.get(name)
        for name in ("agents", "seconds", "steps_per_second", "device", "compile")
    }
    resumed = len(record.run.get("resumed", []))
    return {
        "seed": record.identity["seed"],
        "means": means,
        "frozen": record.frozen,
        "run": {**run, "resumed": resumed},
        "source": sources.index(source),
        "digest": record.digest,
    }


def _mean(values: Sequence[Any]) -> float | None:
    numbers = nan_for_none(values)
    return rounded(float(numbers.mean())) if len(numbers) else None


def _curve(cell: Cell) -> dict[str, Any]:
    """The cell's curves as JSON; of diagnostics the mean alone."""
    steps, curves = cell.curves()
    if not steps:
        return {}
    shown = {
        name: values[:1] if name in DIAGNOSTIC_CURVES else values for name, values in curves.items()
    }
    return {
        "step": steps,
        **{name: [rounded(row.tolist()) for row in rows] for name, rows in shown.items()},
    }


def _trace(record: Record) -> dict[str, Any] | None:
    """A record's trace for the page."""
    if record.trace is None:
        return None
    raw = zlib.decompress(base64.b64decode(record.trace["data"]))
    kept = {name: record.trace[name] for name in ("shape", "low", "high", "seed")}
    return {"agent": record.identity["seed"], **kept, "data": base64.b64encode(raw).decode()}


def rounded(value: Any, digits: int = 5) -> Any:
    """A number, or each of a sequence, to so many digits; None for what is not finite."""
    return (
        [round_digits(item, digits) for item in value]
        if isinstance(value, tuple | list)
        else round_digits(value, digits)
    )
