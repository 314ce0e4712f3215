"""PPO's records in a store: a JSON line per agent, and the spool for new ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from damper.errors import DamperError
from damper.files import write_bytes
from paper.experiments.store import read_lines

FILE = "ppo.jsonl"
SPOOL = Path("spool", "ppo")


def ppo_line(record: dict[str, Any]) -> str:
    """A record as one line of JSON."""
    return json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n"


def read_ppo_records(results: Path) -> list[dict[str, Any]]:
    """The records of the JSONL file and of the spool, in a fixed order."""
    sources = [(results / FILE, line) for line in read_lines(results / FILE)]
    sources += [(path, path.read_text(encoding="utf-8")) for path in _spooled(results)]
    records: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path, text in sources:
        try:
            record = json.loads(text)
            records.setdefault(_key(record), record)
        except (ValueError, KeyError) as error:
            raise DamperError(
                f"{path} is not a complete record ({error}): delete it and train again."
            ) from error
    return [records[key] for key in sorted(records)]


def fold_ppo(results: Path) -> int:
    """Move the spool's records into the JSONL file; how many were moved."""
    paths = _spooled(results)
    if paths:
        text = "".join(ppo_line(record) for record in read_ppo_records(results))
        write_bytes(results / FILE, text.encode())
    for path in paths:
        path.unlink()
    return len(paths)


def _spooled(results: Path) -> list[Path]:
    return sorted((results / SPOOL).glob("*.json"))


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    """What no two records share: environment, size of minibatches, label, steps and seed."""
    size = record["ppo"].get("batch_size", 0)
    return record["env"], size, record["label"], record["steps"], record["seed"]
