"""The results store: one small JSON file per trained agent, named by its identity; there is no index.

Files are written atomically and never changed afterwards, so several processes can fill one store,
and two stores are merged by copying files.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from damper.errors import DamperError
from damper.files import write_bytes
from damper.provenance import digest
from paper.experiments.timings import read_timings, timing_path

FORMAT = 1
_RECORD_NAME = re.compile(r"-[0-9a-f]{20}\.json$")
_ADDED_FIELDS = ("sources", "origin")  # not in the first records
_OPTIONAL_FIELDS = (*_ADDED_FIELDS, "policy")


@dataclass(frozen=True, eq=False)
class Record:
    """The result of one agent, and how it was made.

    Attributes:
        identity: everything that can change its result (``experiments.identity``).
        deviations: training settings that differ from the protocol; empty for a published cell.
        episodes: the evaluation by column: ``return``, ``length``, ``smoothness``, ...; one entry
            per episode.
        curve: training by column at no more than 100 steps: ``step``, ``return``, ``sm``,
            ``cosine``, ...
        trace: one episode's actions, packed (``records.pack_trace``); None for later seeds.
        frozen: the update at which the agent's gradient stopped being finite; None for a sound
            agent.
        run: speed, seconds, size of the population, interruptions, and execution settings.
        versions: of every library.
        hardware: the machine in words.
        commit: of the source tree.
        command: the command that makes this record again.
        sources: digests of the package's source when the agent was trained, resumed and measured:
            one, unless the code changed in between. Empty in an old record.
        origin: where the package was installed from, if no commit is known.
        policy: the agent's policy file, which a store keeps beside the record; None where it is not
            kept.
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
    sources: list[str] = field(default_factory=list)
    origin: str | None = None
    format: int = field(default=FORMAT)
    policy: bytes | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """The identity's short name."""
        return digest(self.identity)

    @property
    def code(self) -> str:
        """The code that made it: the digests of its source, or the commit where they are not known."""
        head, _, changes = (self.commit or "unknown").partition("+")
        name = "source " + " then ".join(self.sources) if self.sources else f"commit {head[:10]}"
        return name + (" with uncommitted changes" if changes else "")

    def text(self) -> str:
        """The record as JSON, one line per field, so that git shows which fields differ."""
        content = {
            name: value
            for name, value in asdict(self).items()
            if value or name not in _ADDED_FIELDS
        }
        del content["policy"]
        lines = (
            f"{json.dumps(k)}: {json.dumps(v, sort_keys=True, allow_nan=False)}"
            for k, v in content.items()
        )
        return "{\n" + ",\n".join(lines) + "\n}\n"


def read_record(path: Path) -> Record:
    """Read a record; raises for a file that is damaged, misnamed or of another format."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        names = [
            f.name for f in fields(Record) if f.name in content or f.name not in _OPTIONAL_FIELDS
        ]
        record = Record(**{name: content[name] for name in names})
        sound = record.format == FORMAT and path.name.endswith(f"-{record.digest}.json")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        cure = (
            "delete it and run the experiment again"
            if _RECORD_NAME.search(path.name)
            else "move it elsewhere"
        )
        raise DamperError(f"{path} is not a complete record ({error}): {cure}.") from error
    if not sound:
        raise DamperError(
            f"{path} does not match its name: delete it and run the experiment again."
        )
    return record


@dataclass(frozen=True)
class Merged:
    """The result of a merge: records added, already there, and there with other content (left as they were)."""

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

    def path(self, identity: Mapping[str, Any]) -> Path:
        """The path of an identity's record: ``protocol/task/backbone-method-seed-digest.json``."""
        protocol, task, method = (
            _safe(str(identity[name])) for name in ("protocol", "task", "method")
        )
        file = f"{identity['backbone']}-{method}-{identity['seed']}-{digest(identity)}.json"
        return self.folder / protocol / task / file

    def policy_path(self, identity: Mapping[str, Any]) -> Path:
        """The path of its policy file, if one is kept: in ``policies/``, named like the record."""
        path = self.path(identity).relative_to(self.folder)
        return (self.folder / "policies" / path).with_suffix(".safetensors")

    def has(self, identity: Mapping[str, Any]) -> bool:
        """Whether the store has a sound record of this identity; a damaged one causes a warning."""
        path = self.path(identity)
        if not path.exists():
            return False
        try:
            read_record(path)
        except DamperError as error:
            warnings.warn(str(error), stacklevel=2)
            return False
        return True

    def add(self, record: Record) -> Path:
        """Write a record, and its policy if it has one; a record that is already there stays as it is."""
        if not self.has(record.identity):
            if record.policy is not None:
                write_bytes(self.policy_path(record.identity), record.policy)
            write_bytes(self.path(record.identity), record.text().encode())
        return self.path(record.identity)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records in the order of their paths; a damaged one causes a warning and is left out."""
        for path in sorted(self.folder.glob("*/*/*.json")):
            try:
                yield read_record(path)
            except DamperError as error:
                warnings.warn(str(error), stacklevel=2)

    def merge(self, other: Store) -> Merged:
        """Copy what this store lacks from another: agents' records and policies, and update times."""
        if not other.folder.is_dir():
            raise DamperError(
                f"merge must name a folder of results, but {str(other.folder)!r} is not one."
            )
        added, same, different = 0, 0, []
        theirs = [
            (self.path(record.identity), record.text(), self.has(record.identity))
            for record in other
        ]
        whole = {timing_path(self.folder, timing) for timing in read_timings(self.folder)}
        for timing in read_timings(other.folder):
            path = timing_path(self.folder, timing)
            theirs.append((path, timing.text(), path in whole))
        for path, text, here in theirs:
            if here and path.read_text(encoding="utf-8") != text:
                different.append(
                    str(path.relative_to(self.folder))
                )  # its policy is another one too
                continue
            name = (Path("policies") / path.relative_to(self.folder)).with_suffix(".safetensors")
            if (other.folder / name).is_file() and not (here and (self.folder / name).exists()):
                write_bytes(self.folder / name, (other.folder / name).read_bytes())
            if not here:
                write_bytes(path, text.encode())
            added, same = added + (not here), same + here
        return Merged(added, same, different)


def _safe(name: str) -> str:
    return re.sub(r"[^\w.+-]", "_", name)
