"""Measured update times in the results store: ``bench/backbone-method-digest.json``, written by ``python -m paper bench``."""

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

_ADDED_FIELDS = ("source", "origin", "rounds")  # not in the first timings


@dataclass(frozen=True, eq=False)
class Timing:
    """Milliseconds per update iteration of one backbone and method.

    Attributes:
        backbone: "td3" or "sac".
        method: its name.
        task: whose observation and action sizes were used.
        milliseconds: mean over the timed iterations.
        rounds: milliseconds per iteration in each round, in order, if recorded: they show the
            spread.
        iterations: number of timed iterations.
        agents: number of agents updated at once.
        batch_size: transitions per agent and update.
        how: device, compiled or graphed, number format, implementation; only timings with the same
            are compared.
        versions: of every library.
        hardware: the machine in words.
        commit: of the source tree.
        command: the command that measures this again.
        source: a digest of the package's source files; None in an old timing.
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

    def text(self) -> str:
        """The timing as JSON; fields that an older timing lacks are left out."""
        content = {
            name: value
            for name, value in asdict(self).items()
            if value or name not in _ADDED_FIELDS
        }
        return json.dumps(content, indent=1, sort_keys=True) + "\n"


def ratio_of_rounds(ours: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """Our time divided by another's, round by round: the 5 % quantile, the median and the 95 % quantile."""
    low, middle, high = np.quantile(np.divide(ours, base), [0.05, 0.5, 0.95])
    return float(low), float(middle), float(high)


def timing_path(results: Path, timing: Timing) -> Path:
    """The path of a timing in a store."""
    return results / "bench" / f"{timing.backbone}-{timing.method}-{timing.setting}.json"


def write_timing(results: Path, timing: Timing) -> Path:
    """Write a timing, replacing an older one of the same measurement on the same hardware."""
    path = timing_path(results, timing)
    write_bytes(path, timing.text().encode())
    return path


def read_timings(results: Path) -> list[Timing]:
    """All timings in the order of their paths; a damaged one causes a warning and is left out."""
    found = []
    for path in sorted((results / "bench").glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            names = [
                f.name for f in fields(Timing) if f.name in content or f.name not in _ADDED_FIELDS
            ]
            found.append(Timing(**{name: content[name] for name in names}))
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"{path} is not a complete timing ({error}): delete it and measure again.",
                stacklevel=2,
            )
    return found
