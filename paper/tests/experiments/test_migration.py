"""No number of the single files of before was lost or changed when they became JSON lines.

``before_migration.txt`` has a digest of each of them: episodes, settings, provenance, curve, trace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper.experiments.ppo_records import read_ppo_records
from paper.experiments.store import Record, Store
from paper.experiments.timings import Timing, read_timings

RESULTS = Path(__file__).parents[3] / "results"
BEFORE = Path(__file__).with_name("before_migration.txt").read_text(encoding="utf-8").splitlines()


def short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def split(columns: Any, *names: str) -> list[Any]:
    """Some columns without their names, which are others now, and the rest."""
    rest = {name: values for name, values in columns.items() if name not in names}
    return [rest, *(columns[name] for name in names)]


def agent_digest(record: Record) -> str:
    who = record.identity
    names = ("task", "backbone", "method", "method_settings", "seed", "protocol", "training")
    settings = [who[name] for name in (*names, "numerics", "backend", "physics", "episodes")]
    experiment = record.command.split()[4:5]
    code = [record.commit, record.sources, record.origin]
    parts = (
        [*settings, record.deviations],
        split(record.episodes, "sm"),
        split(record.curve, "mean_change"),
        [record.versions, record.hardware, *code, record.run, record.frozen, experiment],
        record.trace,
    )
    return short(" ".join(map(short, parts)))


def ppo_digest(record: dict[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name not in ("measures", "curve")}
    curve = split(record["curve"], "conflict", "auxiliary_loss")
    return short([rest, *split(record["measures"], "sm"), *curve])


def timing_digest(timing: Timing) -> str:
    content = vars(timing)
    names = ("source", "origin", "rounds")
    rest = {n: value for n, value in content.items() if n not in (*names, "command")}
    return short([*(content[name] for name in names), rest])


def now() -> Iterator[str]:
    yield from (f"agent {agent_digest(record)}" for record in Store(RESULTS))
    yield from (f"ppo {ppo_digest(record)}" for record in read_ppo_records(RESULTS))
    yield from (f"timing {timing_digest(timing)}" for timing in read_timings(RESULTS))


def test_every_record_of_before_is_there_with_its_numbers() -> None:
    assert len(BEFORE) == 593 + 75 + 28
    assert sorted(set(BEFORE) - set(now())) == []


def test_the_store_is_a_few_sorted_files() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file() and path.name != ".lock"]
    assert len(files) <= 40
    for path in RESULTS.glob("*/*.jsonl"):
        digests = [json.loads(line)["digest"] for line in path.read_text().splitlines()]
        assert digests == sorted(set(digests)) != []
        assert "trace" not in path.read_text()[:100]
    policies = [path for path in files if path.suffix == ".safetensors"]
    assert 0 < sum(path.stat().st_size for path in policies) < 12e6
