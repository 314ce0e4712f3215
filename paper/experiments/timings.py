"""Measured update times in the results store, a JSON line each."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from damper.files import write_bytes
from damper.provenance import digest

FILE = "bench.jsonl"  # in a store


@dataclass(frozen=True, eq=False)
class Timing:
    """Milliseconds per update iteration of one backbone and method, as a mean and by rounds.

    Attributes:
        task: whose observation and action sizes were used.
        agents: number of agents updated at once.
        how: device, mode, number format, implementation; only timings with the same are compared.
        source: a digest of the package's source files.
        origin: where the package was installed from, if no commit is known.
    """

    backbone: str
    method: str
    task: str
    milliseconds: float
    iterations: int
    agents: int
    batch_size: int
    how: Mapping[str, Any]
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    commit: str | None
    command: str
    source: str | None = None
    origin: str | None = None
    rounds: Sequence[float] = ()

    @property
    def setting(self) -> str:
        """A digest of everything that timings must share to be compared."""
        gpu_or_cpu = self.hardware.get("gpu", self.hardware.get("cpu"))
        return digest([self.task, self.agents, self.batch_size, self.how, gpu_or_cpu])[:8]

    @property
    def machine(self) -> str:
        """Where and how it was measured, in words."""
        chip = self.hardware.get("gpu", self.hardware.get("cpu"))
        number_format = "TF32" if self.how.get("tf32") else "float32"
        return f"{chip}, {self.how.get('mode', 'eager')}, {number_format}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What no two timings of a store share."""
        return (self.backbone, self.method, self.setting)

    def text(self) -> str:
        """The timing as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")) + "\n"


def ratio_of_rounds(ours: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """Our time over another's by rounds: 5 % quantile, median, 95 % quantile."""
    low, middle, high = np.quantile(np.divide(ours, base), [0.05, 0.5, 0.95])
    return float(low), float(middle), float(high)


def write_timing(results: Path, timing: Timing) -> Path:
    """Write a timing, replacing an older one of the same measurement on the same hardware."""
    timings = {other.key: other for other in read_timings(results)} | {timing.key: timing}
    path = results / FILE
    write_bytes(path, "".join(timings[key].text() for key in sorted(timings)).encode())
    return path


def read_timings(results: Path) -> list[Timing]:
    """All timings in order; a damaged one causes a warning and is left out."""
    path, timings = results / FILE, []
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
            timings.append(Timing(**{f.name: content[f.name] for f in fields(Timing)}))
        except (ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"{path}, line {number} is not a complete timing ({error}): delete the line and "
                "measure again.",
                stacklevel=2,
            )
    return timings
