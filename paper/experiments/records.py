"""Make records from a finished run and its evaluation."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.engine.run.folder import Run
from damper.engine.run.metrics_log import EPISODE_VALUES
from damper.engine.settings import EXECUTION
from damper.policies.episodes import Episode
from damper.policies.evaluate import Evaluation
from damper.provenance import source_digest
from damper.tasks import PAPER_TASKS
from paper.experiments.catalogue import TABLE_METHODS
from paper.experiments.identity import deviations, published_settings
from paper.experiments.store import Record

DIAGNOSTIC_CURVES = ("cosine", "conflict", "norm_ratio", "weight")
CURVE_COLUMNS = (*EPISODE_VALUES, *DIAGNOSTIC_CURVES)
CURVE_POINTS = 100
TRACED_SEEDS = 2  # per cell; traces of more seeds would fill the repository for no use
KEPT_POLICIES = ("plain", "damper")  # of a cell's first seed
TRACE_LEVELS = 65534  # steps of a 16-bit action


def make_record(
    run: Run,
    evaluation: Evaluation,
    index: int,
    identity: Mapping[str, Any],
    rank: int,
    command: str,
) -> Record:
    """Make the record of one agent of a run; ``rank`` is its index among its cell's seeds."""
    manifest, metrics = run.manifest, run.metrics()
    episodes = evaluation.episodes[index]
    frozen = {int(agent): at for agent, at in manifest.get("frozen", {}).items()}
    kept = rank == 0 and identity["method"] in KEPT_POLICIES and in_main_table(identity)
    return Record(
        identity=identity,
        deviations=deviations(identity),
        episodes=_columns([episode.record() for episode in episodes]),
        curve=curve(metrics, index),
        trace=pack_trace(episodes[0]) if rank < TRACED_SEEDS else None,
        frozen=frozen.get(index),
        run=_run_facts(manifest, metrics),
        versions=evaluation.versions,
        hardware=manifest["hardware"],
        commit=manifest["commit"],
        command=command,
        sources=_sources(manifest),
        origin=manifest.get("origin"),
        policy=run.policy_path(index).read_bytes() if kept else None,
    )


def in_main_table(identity: Mapping[str, Any]) -> bool:
    """Whether an agent belongs to one of the paper's two main tables."""
    method, task = identity["method"], identity["task"]
    if task not in PAPER_TASKS or method not in TABLE_METHODS:
        return False
    if identity["protocol"] is None or deviations(identity):
        return False
    published = published_settings(method, task, identity["backbone"])
    return bool(identity["method_settings"] == published)


def _sources(manifest: Mapping[str, Any]) -> list[str]:
    """Digests of the code that started, resumed and measures the run."""
    resumed = [event["source"] for event in manifest.get("resumed", []) if "source" in event]
    return list(dict.fromkeys([manifest.get("source", "unknown"), *resumed, source_digest()]))


def _run_facts(manifest: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How the run was executed; after an interruption ``seconds`` covers its last part only."""
    settings, last = manifest["settings"], metrics[-1] if metrics else {}
    return {
        "agents": len(manifest["agents"]),
        "seconds": manifest.get("seconds"),
        "steps_per_second": last.get("steps_per_second"),
        "updates": last.get("updates"),
        "resumed": manifest.get("resumed", []),
        **{name: settings[name] for name in EXECUTION},
    }


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [round_digits(row[name], 8) for row in rows] for name in rows[0]}


def round_digits(value: Any, digits: int) -> Any:
    """Round to ``digits`` significant digits; None for a number that is not finite."""
    if isinstance(value, bool | int) or value is None:
        return value
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def curve(
    metrics: Sequence[Mapping[str, Any]], agent: int, points: int = CURVE_POINTS
) -> dict[str, list[Any]]:
    """One agent's training curve: means of the metrics between ``points`` steps, or None."""
    if not metrics:
        return {"step": []}
    parts = np.array_split(np.arange(len(metrics)), min(points, len(metrics)))
    out: dict[str, list[Any]] = {"step": [metrics[part[-1]]["step"] for part in parts]}
    for name in CURVE_COLUMNS:
        means = [_mean([metrics[i] for i in part], name, agent) for part in parts]
        if any(value is not None for value in means):
            out[name] = means
    return out


def _mean(lines: Sequence[Mapping[str, Any]], name: str, agent: int) -> float | None:
    """Of the finite values; None if there is none."""
    values = [line[name][agent] for line in lines if name in line]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return round_digits(np.mean(finite), 5) if finite else None


def pack_trace(episode: Episode) -> dict[str, Any]:
    """Actions in 16 bits: level k means ``low + (k/65534 + ½)(high − low)``."""
    low, high = episode.low.astype(np.float64), episode.high.astype(np.float64)
    levels = np.rint(((episode.executed - low) / (high - low) - 0.5) * TRACE_LEVELS).astype("<i2")
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(levels.T).tobytes(), 9)).decode()
    bounds = {"low": low.tolist(), "high": high.tolist()}
    return {"seed": episode.seed, "shape": list(levels.shape), **bounds, "data": data}


def unpack_trace(trace: Mapping[str, Any]) -> NDArray[np.float64]:
    """The actions ``[T, A]`` of a packed trace, exact to half a level."""
    steps, dims = trace["shape"]
    data = zlib.decompress(base64.b64decode(trace["data"]))
    levels = np.frombuffer(data, "<i2").reshape(dims, steps).T
    low, high = np.array(trace["low"]), np.array(trace["high"])
    return low + (levels / TRACE_LEVELS + 0.5) * (high - low)
