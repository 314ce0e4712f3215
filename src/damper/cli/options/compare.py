"""Options of ``damper compare``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from damper.cli.options import EngineOptions
from damper.cli.options.method import MethodOptions


@dataclass
class Compare:
    """Train several methods alike, evaluate them on the same seeds, and show table and pictures."""

    env: tyro.conf.Positional[str]
    """A Gymnasium id (Pendulum-v1) or a task of the paper (Hopper)."""
    methods: tuple[str, ...] = ("plain", "damper")
    """Which methods."""
    backbone: Literal["td3", "sac"] = "td3"
    """The actor-critic algorithm."""
    seeds: int = 3
    """How many seeds: the protocol's first ones, or 0, 1, ..."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    steps: int | None = None
    """Environment steps per agent; the paper's budget for its tasks."""
    protocol: Literal["pave", "damper"] | None = None
    """Published settings to start from."""
    episodes: int = 10
    """Evaluation episodes per agent, on the protocol's fixed seeds."""
    out: Path = Path("runs/compare")
    """Where runs, records and pictures go."""
    engine: EngineOptions = field(default_factory=EngineOptions)
    settings: MethodOptions = field(default_factory=MethodOptions)  # type: ignore[valid-type]
    """Settings of the method."""
