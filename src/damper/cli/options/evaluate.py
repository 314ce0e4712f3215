"""Options of ``damper evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass
class Evaluate:
    """Deterministic episodes of any policy: table, records, action traces, and a picture of them."""

    source: tyro.conf.Positional[Path]
    """A run's folder, a policy file, a Stable-Baselines3 zip (with or without its ending), or an ONNX file."""
    env: str | None = None
    """The environment, where the source does not tell it or another one is wanted."""
    episodes: int = 10
    """How many, on the protocol's fixed seeds."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    filter: str | None = None
    """Filter the executed action: low-pass:ALPHA or slew-rate:LIMIT."""
    envs: Literal["gymnasium", "envpool"] = "gymnasium"
    """Who steps the environments."""
    out: Path | None = None
    """Where to write; by default evaluation/ in the run's folder, or beside the file."""
    vecnormalize: Path | None = None
    """Statistics that VecNormalize saved, for a Stable-Baselines3 zip."""
    trust: bool = False
    """Allow unpickling what cannot be read otherwise: it runs whatever code the file carries."""
