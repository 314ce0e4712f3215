"""The results store: one JSON line per trained agent, in a file per protocol and task.

A writer leaves each new record as a file of its own in the spool, written atomically and never
changed, so that several processes can fill one store. ``Store.fold`` moves them into the JSONL
files, which are sorted by digest. Actions of the traced episodes are in a file of their own.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock

from damper.errors import DamperError
from damper.files import write_bytes
from damper.provenance import digest
from paper.experiments.timings import read_timings, write_timing

FORMAT = 2
SPOOL = "spool"
TRACES = "traces.jsonl"
_RECORD_NAME = re.compile(r"-[0-9a-f]{20}\.json$")


@dataclass(frozen=True, eq=False)
class Record:
    """The result of one agent, and how it was made.

    Attributes:
        identity: everything that can change its result (``experiments.identity``).
        deviations: training settings that differ from the protocol.
        episodes: the evaluation by column (``return``, ``sm``, ...), one entry per episode.
        curve: training by column at no more than 100 steps.
        trace: one episode's actions, packed (``records.pack_trace``); None for later seeds.
        frozen: the update at which its gradient stopped being finite; None for a sound agent.
        run: speed, seconds, size of the population, interruptions, and execution settings.
        sources: digests of the code that trained, resumed and measured it; empty where only the
            commit is known.
        origin: where the package was installed from, if no commit is known.
        policy: its policy file, which a store keeps beside the records; None if it is not kept.
    """

    identity: Mapping[str, Any]
    deviations: Mapping[str, Any]
    episodes: Mapping[str, list[Any]]
    curve: Mapping[str, list[Any]]
    trace: Mapping[str, Any] | None
    frozen: int | None
    run: Mapping[str, Any]
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    commit: str | None
    command: str
    sources: list[str]
    origin: str | None
    format: int = field(default=FORMAT)
    policy: bytes | None = field(default=None, repr=False)

    @cached_property
    def digest(self) -> str:
        """The identity's short name."""
        return digest(self.identity)

    @property
    def code(self) -> str:
        """The code that made it: the digests of its source, or the commit."""
        head, _, changes = (self.commit or "unknown").partition("+")
        name = "source " + " then ".join(self.sources) if self.sources else f"commit {head[:10]}"
        return name + (" with uncommitted changes" if changes else "")

    def text(self) -> str:
        """The record as one line of JSON, which begins with its digest."""
        content = asdict(self)
        del content["policy"]
        return json_line({"digest": self.digest}, content)


def json_line(first: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """One line of JSON: ``first`` in its order, then the others by name."""
    ordered = {**first, **{name: others[name] for name in sorted(others)}}
    form = json.JSONEncoder(sort_keys=True, allow_nan=False, separators=(",", ":"))
    parts = (f"{form.encode(name)}:{form.encode(value)}" for name, value in ordered.items())
    return "{" + ",".join(parts) + "}\n"


def parse_record(text: str, trace: Mapping[str, Any] | None = None) -> Record:
    """The record of a line; raises ValueError, KeyError or TypeError for anything else."""
    content = json.loads(text)
    names = [f.name for f in fields(Record) if f.name != "policy"]
    record = Record(**{"trace": trace, **{n: content[n] for n in names if n in content}})
    if record.format != FORMAT:
        raise ValueError(f"format {record.format}, where {FORMAT} is read")
    if record.digest != content["digest"]:
        raise ValueError("its digest is not that of its identity")
    return record


def read_record(path: Path) -> Record:
    """A spooled file's record; raises if it is damaged, misnamed or of another format."""
    try:
        record = parse_record(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        is_ours = _RECORD_NAME.search(path.name)
        cure = "delete it and run the experiment again" if is_ours else "move it elsewhere"
        raise DamperError(f"{path} is not a complete record ({error}): {cure}.") from error
    if not path.name.endswith(f"-{record.digest}.json"):
        raise DamperError(
            f"{path} does not match its name: delete it and run the experiment again."
        )
    return record


def read_lines(path: Path) -> list[str]:
    """The lines of a JSONL file; none where there is no file."""
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@dataclass(frozen=True)
class Merged:
    """How many records a merge added, found the same, and which ones differ here."""

    added: int
    same: int
    different: list[str]


class Store:
    """A folder of records."""

    def __init__(self, folder: str | Path) -> None:
        """Open a store; its folder is created at the first write."""
        self.folder = Path(folder)
        if self.folder.is_file():
            raise DamperError(
                f"results must be a folder of records, but {self.folder} is a file: choose another."
            )

    def spool_path(self, identity: Mapping[str, Any]) -> Path:
        """Where a new record lands: ``spool/protocol/task/backbone-method-seed-digest.json``."""
        return self.folder / SPOOL / f"{_place(identity)}.json"

    def policy_path(self, identity: Mapping[str, Any]) -> Path:
        """The path of its policy file, if one is kept: in ``policies/``, named like the record."""
        return self.folder / "policies" / f"{_place(identity)}.safetensors"

    def lines_path(self, identity: Mapping[str, Any]) -> Path:
        """The file that holds its line once it is folded: ``protocol/task.jsonl``."""
        return self.folder / Path(_place(identity)).parent.with_suffix(".jsonl")

    @cached_property
    def _folded(self) -> dict[str, Record]:
        """The records of the JSONL files by digest."""
        traced = map(json.loads, read_lines(self.folder / TRACES))
        traces = {line["digest"]: line["trace"] for line in traced}
        records = {}
        for path in sorted(self.folder.glob("*/*.jsonl")):
            for number, line in enumerate(read_lines(path), start=1):
                try:
                    record = parse_record(line)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    warnings.warn(
                        f"{path}, line {number} is not a complete record ({error}): delete the "
                        "line and run the experiment again.",
                        stacklevel=2,
                    )
                else:
                    trace = traces.get(record.digest)
                    records[record.digest] = replace(record, trace=trace)
        return records

    def find(self, identity: Mapping[str, Any]) -> Record | None:
        """The record of an identity, if there is a sound one; a damaged one causes a warning."""
        folded = self._folded.get(digest(identity))
        path = self.spool_path(identity)
        if folded is not None or not path.exists():
            return folded
        try:
            return read_record(path)
        except DamperError as error:
            warnings.warn(str(error), stacklevel=2)
            return None

    def has(self, identity: Mapping[str, Any]) -> bool:
        """Whether the store has a sound record of this identity."""
        return self.find(identity) is not None

    def add(self, record: Record) -> Path:
        """Write a record, and its policy if it has one, to the spool; one that is there stays."""
        path = self.spool_path(record.identity)
        if not self.has(record.identity):
            if record.policy is not None:
                write_bytes(self.policy_path(record.identity), record.policy)
            write_bytes(path, record.text().encode())
        return path

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records, those of the spool last."""
        yield from self._folded.values()
        yield from (record for _, record in self._spooled() if record.digest not in self._folded)

    def _spooled(self) -> Iterator[tuple[Path, Record]]:
        for path in sorted((self.folder / SPOOL).glob("*/*/*.json")):
            try:
                yield path, read_record(path)
            except DamperError as error:
                warnings.warn(str(error), stacklevel=2)

    def fold(self) -> int:
        """Move the spool's records into the JSONL files; how many were new there.

        A process that is killed in between leaves records in both places, which count once.
        """
        if not (self.folder / SPOOL).is_dir():
            return 0
        with FileLock(self.folder / SPOOL / ".lock"):
            self.__dict__.pop("_folded", None)
            spooled = list(self._spooled())
            new = {r.digest: r for _, r in spooled if r.digest not in self._folded}
            changed = {self.lines_path(record.identity) for record in new.values()}
            self._write({**self._folded, **new}, changed)
            for path, _ in spooled:
                path.unlink()
        self.__dict__.pop("_folded", None)
        return len(new)

    def _write(self, records: Mapping[str, Record], changed: Iterable[Path]) -> None:
        """Write the traces, then the JSONL files that change, each sorted by digest."""
        ordered = [records[name] for name in sorted(records)]
        traced = [r for r in ordered if r.trace is not None]
        if traced:
            lines = (json_line({"digest": r.digest}, {"trace": r.trace}) for r in traced)
            write_bytes(self.folder / TRACES, "".join(lines).encode())
        for path in changed:
            members = (r for r in ordered if self.lines_path(r.identity) == path)
            lines = (replace(record, trace=None).text() for record in members)
            write_bytes(path, "".join(lines).encode())

    def merge(self, other: Store) -> Merged:
        """Take what this store lacks from another: records, policies and update times."""
        if not other.folder.is_dir():
            raise DamperError(
                f"merge must name a folder of results, but {str(other.folder)!r} is not one."
            )
        added, same, different = 0, 0, []
        for theirs in other:
            ours = self.find(theirs.identity)
            if ours is not None and ours.text() != theirs.text():
                different.append(_place(theirs.identity))  # its policy is another one too
                continue
            policy = other.policy_path(theirs.identity)
            if policy.is_file() and not (ours and self.policy_path(theirs.identity).exists()):
                write_bytes(self.policy_path(theirs.identity), policy.read_bytes())
            if ours is None:
                self.add(theirs)
            added, same = added + (ours is None), same + (ours is not None)
        kept = {timing.key: timing for timing in read_timings(self.folder)}
        for timing in read_timings(other.folder):
            if timing.key not in kept:
                write_timing(self.folder, timing)
            elif kept[timing.key].text() != timing.text():
                different.append("-".join(timing.key))
                continue
            added, same = added + (timing.key not in kept), same + (timing.key in kept)
        return Merged(added, same, different)


def _place(identity: Mapping[str, Any]) -> str:
    """``protocol/task/backbone-method-seed-digest``."""
    protocol, task, method = (_safe(str(identity[name])) for name in ("protocol", "task", "method"))
    name = f"{identity['backbone']}-{method}-{identity['seed']}-{digest(identity)}"
    return f"{protocol}/{task}/{name}"


def _safe(name: str) -> str:
    return re.sub(r"[^\w.+-]", "_", name)
