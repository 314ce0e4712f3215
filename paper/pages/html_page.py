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
    Aggregate,
    aggregates,
    best_cells,
    code_versions,
    cost_tables,
    speed_rows,
)

SCRIPTS = ("core.js", "chart.js", "results.js", "pictures.js", "sweeps.js", "main.js")


def page(data: dict[str, Any]) -> str:
    """The page that shows ``page_data``'s result."""
    compact: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    text = json.dumps(data, sort_keys=True, **compact)
    out = _read("page.html").replace("@@style@@", _read("style.css"))
    out = out.replace("@@script@@", "".join(map(_read, SCRIPTS)))
    # A "<" in the data could end the script element; JSON may write it as an escape instead.
    return out.replace("@@data@@", text.replace("<", "\\u003c"))


def _read(name: str) -> str:
    return files("paper.pages").joinpath("html", name).read_text(encoding="utf-8")


def page_data(every_setup: Sequence[Setup], timings: Sequence[Timing]) -> dict[str, Any]:
    """Everything that the page needs; provenance is kept once and referred to by number."""
    sources: list[dict[str, Any]] = []
    timed, costs = time_verdicts(timings), cost_tables(timings)
    known = any(verdict.known for verdict in timed)
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
        "cost": [{"header": COST_HEADER, **table._asdict()} for table in costs],
        "timeClaims": [_claim(verdict) for verdict in timed] if known else [],
    }


def _claim(verdict: Verdict, at_one_eta: Verdict | None = None) -> dict[str, Any]:
    """A claim; judged with η = 1 as well where that makes a difference to what is compared."""
    differs = at_one_eta is not None and at_one_eta.checks != verdict.checks
    return {**verdict._asdict(), "one": _claim(at_one_eta) if at_one_eta and differs else None}


def _setup(setup: Setup, every: Sequence[Setup], sources: list[dict[str, Any]]) -> dict[str, Any]:
    best = best_cells(setup)
    judged = list(zip(verdicts(setup), verdicts(setup, ONE_ETA), strict=True))
    known = any(verdict.known or at_one_eta.known for verdict, at_one_eta in judged)
    others = (other for other in every if other is not setup)
    return {
        "key": setup.key,
        "title": setup.title,
        "protocol": setup.protocol,
        "custom": bool(setup.deviations),
        "agents": setup.agents,
        "episodes": setup.episodes,
        "others": [f"{counted(other.agents, 'agent')}: {other.title}" for other in others],
        "cells": [_cell(setup, cell, sources, best) for cell in setup.cells],
        "claims": [_claim(*both) for both in judged] if known else [],
        "code": {backbone: _code(setup, backbone) for backbone in BACKBONES},
        "aggregates": [_aggregate(aggregate) for aggregate in aggregates(setup)],
        "speed": {"header": SPEED_HEADER, "rows": speed_rows(setup)},
    }


def _code(setup: Setup, backbone: str) -> dict[str, str]:
    """The versions of the code that made the published cells of each task."""
    cells: dict[str, list[Cell]] = {task: [] for task in setup.tasks(backbone)}
    for cell in setup.published:
        if cell.backbone == backbone:
            cells[cell.task].append(cell)
    return {task: code_versions(members) for task, members in cells.items()}


def _aggregate(aggregate: Aggregate) -> dict[str, Any]:
    content = aggregate._asdict()
    content["changeTasks"] = content.pop("change_tasks")
    return {
        name: rounded(value) if isinstance(value, tuple) else value
        for name, value in content.items()
    }


def _cell(
    setup: Setup, cell: Cell, sources: list[dict[str, Any]], best: Mapping[str, Sequence[Cell]]
) -> dict[str, Any]:
    published = cell in setup.published
    names = ("return", "sm") if published else ()
    papers = {name: printed(cell.backbone, cell.method, cell.task, name) for name in names}
    at_one_eta = setup.find(cell.backbone, cell.task, "damper", eta=ONE_ETA)
    return {
        "backbone": cell.backbone,
        "task": cell.task,
        "method": cell.method,
        "title": title(cell.method, cell.backbone),
        "label": cell.label,
        "settings": cell.settings,
        "published": published,
        "oneEta": cell.task in PAPER_TASKS and cell is at_one_eta,
        "seeds": cell.seeds,
        "frozen": cell.frozen,
        "constant": cell.constant,
        "mostlyConstant": cell.mostly_constant,
        "best": [name for name, cells in best.items() if cell in cells],
        "values": {name: values for name in MEASURES if (values := _values(cell, name))},
        "paper": {name: list(value) for name, value in papers.items() if value},
        "agents": [_agent(record, sources) for record in cell.records],
        "curve": _curve(cell),
        "traces": [_trace(record) for record in cell.records if published and record.trace],
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
    shown = ("agents", "seconds", "steps_per_second", "device", "compile")
    run = {name: record.run.get(name) for name in shown}
    run["resumed"] = len(record.run.get("resumed", []))
    return {
        "seed": record.identity["seed"],
        "means": means,
        "frozen": record.frozen,
        "run": run,
        "source": sources.index(source),
        "digest": record.digest,
    }


def _mean(values: Sequence[Any]) -> float | None:
    numbers = nan_for_none(values)
    return rounded(float(numbers.mean())) if len(numbers) else None


def _curve(cell: Cell) -> dict[str, Any]:
    """The cell's curves as JSON; of diagnostics the mean alone."""
    steps, curves = cell.curves()
    content: dict[str, Any] = {"step": steps} if steps else {}
    for name, values in curves.items():
        shown = values[:1] if name in DIAGNOSTIC_CURVES else values
        content[name] = [rounded(row.tolist()) for row in shown]
    return content


def _trace(record: Record) -> dict[str, Any]:
    """A record's trace for the page, which cannot decompress it."""
    trace = record.trace or {}
    raw = zlib.decompress(base64.b64decode(trace["data"]))
    return {**trace, "agent": record.identity["seed"], "data": base64.b64encode(raw).decode()}


def rounded(value: Any, digits: int = 5) -> Any:
    """A number, or each of a sequence, to so many digits; None for what is not finite."""
    if isinstance(value, tuple | list):
        return [round_digits(item, digits) for item in value]
    return round_digits(value, digits)
