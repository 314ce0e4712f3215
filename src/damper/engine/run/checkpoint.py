"""Checkpoints: complete, verified and atomic; new replay rows are appended.

A checkpoint is ``step-N.json`` (facts, and the SHA-256 of every file it needs), written last, next
to ``step-N.safetensors``; replay rows are in files ``rows-A-B.safetensors``, which checkpoints
share.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from damper.engine.data.replay import Replay
from damper.errors import DamperError
from damper.files import file_sha256, write_json, write_tensors

MAX_CHECKPOINTS = 2  # the newest, and the one before in case the newest is damaged
# Rows per file: they are copied on the device, to the host, and into the file's bytes.
SEGMENT_BYTES = 2**26


class Checkpoint(NamedTuple):
    """A checkpoint as read: facts, tensors by name, and the files of the replay's rows."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]
    segments: list[dict[str, Any]]


class CheckpointStore:
    """The checkpoints of one run; the folder is made when something is first written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._segments: list[dict[str, Any]] = []

    def save(
        self, step: int, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], replay: Replay
    ) -> None:
        """Append replay rows, write the tensors, and last the facts: they complete it."""
        self._append(replay)
        name = f"step-{step:012d}"
        checksums = {"tensors": write_tensors(self.folder / f"{name}.safetensors", tensors)}
        content = {"step": step, "facts": dict(facts), "sums": checksums, "rows": self._segments}
        write_json(self.folder / f"{name}.json", {"content": content, "sum": _sha256(content)})
        self._tidy(f"{name}.json")

    def _append(self, replay: Replay) -> None:
        """Write the rows that are in no file yet; files are not read until the facts name them."""
        oldest = replay.stored - replay.capacity
        first = max(self._segments[-1]["end"] if self._segments else 0, oldest)
        most = max(1, SEGMENT_BYTES // replay.rows[0].nbytes)
        for start in range(first, replay.stored, most):
            end = min(start + most, replay.stored)
            positions = torch.arange(start, end, device=replay.rows.device) % replay.capacity
            name = f"rows-{start:012d}-{end:012d}.safetensors"
            sha256 = write_tensors(self.folder / name, {"rows": replay.rows[positions]})
            self._segments.append({"file": name, "start": start, "end": end, "sum": sha256})
        self._segments = [s for s in self._segments if s["end"] > oldest]

    def _tidy(self, newest: str) -> None:
        """Keep the two newest up to ``newest``; newer ones were refused as damaged."""
        checkpoints = sorted(self.folder.glob("step-*.json"))
        kept = [path for path in checkpoints if path.name <= newest][-MAX_CHECKPOINTS:]
        needed = set()
        for path in kept:
            needed |= {path.name, path.with_suffix(".safetensors").name}
            with suppress(ValueError, KeyError):
                needed |= {row["file"] for row in json.loads(path.read_text())["content"]["rows"]}
        for path in [*checkpoints, *self.folder.glob("*.safetensors"), *self.folder.glob(".*.tmp")]:
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def newest(self, with_rows: bool = True) -> Checkpoint | None:
        """The newest intact checkpoint; damaged ones are skipped with a warning.

        ``with_rows=False`` skips the replay, for callers that need only policies.
        """
        paths = sorted(self.folder.glob("step-*.json"), reverse=True)
        for path in paths:
            try:
                checkpoint = self._read(path, with_rows)
            except DamperError as error:
                before = " The one before it is used." if path != paths[-1] else ""
                warnings.warn(f"{error}{before}", stacklevel=2)
                continue
            self._segments = list(checkpoint.segments)
            return checkpoint
        if paths:
            raise DamperError(
                f"no checkpoint in {self.folder} is intact: delete the folder to start the run "
                "again."
            )
        return None

    def _read(self, path: Path, with_rows: bool) -> Checkpoint:
        try:
            written = json.loads(path.read_text())
            content = written["content"]
            if written["sum"] != _sha256(content):
                raise ValueError("its content was altered")
            tensors = path.with_suffix(".safetensors")
            segments = content["rows"] if with_rows else []
            checksums = {segment["file"]: segment["sum"] for segment in segments}
            checksums[tensors.name] = content["sums"]["tensors"]
            for name, expected in checksums.items():
                if file_sha256(self.folder / name) != expected:
                    raise ValueError(f"{name} was altered")
            return Checkpoint(content["facts"], load_file(tensors), segments)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamperError(
                f"checkpoint {path.stem} is damaged ({error}) and was refused."
            ) from error

    def clear(self) -> None:
        """Remove all checkpoints of a finished run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def load_rows(self, replay: Replay, checkpoint: Checkpoint) -> None:
        """Write the rows back to their positions in the ring."""
        for segment in checkpoint.segments:
            rows = load_file(self.folder / segment["file"])["rows"]
            positions = torch.arange(segment["start"], segment["end"]) % replay.capacity
            keep = slice(-replay.capacity, None)
            replay.rows[positions[keep].to(replay.rows.device)] = rows[keep].to(replay.rows)
            replay.set_stored(segment["end"])


def _sha256(content: Mapping[str, Any]) -> str:
    """SHA-256 of the content as read back: JSON's keys are strings, which sort unlike numbers."""
    read_back = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(read_back, sort_keys=True).encode()).hexdigest()


def split_arrays(tree: Any, path: str, arrays: dict[str, Tensor]) -> Any:
    """Replace the numpy arrays in a nested value by their names, and put them into ``arrays``."""
    if isinstance(tree, np.ndarray):
        arrays[path] = torch.from_numpy(np.ascontiguousarray(tree))
        return {"array": path}
    if isinstance(tree, Mapping):
        return {key: split_arrays(value, f"{path}.{key}", arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [split_arrays(value, f"{path}.{i}", arrays) for i, value in enumerate(tree)]
    return tree.item() if isinstance(tree, np.generic) else tree


def join_arrays(tree: Any, arrays: Mapping[str, Tensor]) -> Any:
    """The inverse of ``split_arrays`` (tuples come back as lists)."""
    if isinstance(tree, Mapping):
        if set(tree) == {"array"}:
            return arrays[tree["array"]].numpy()
        return {key: join_arrays(value, arrays) for key, value in tree.items()}
    return [join_arrays(value, arrays) for value in tree] if isinstance(tree, list) else tree
