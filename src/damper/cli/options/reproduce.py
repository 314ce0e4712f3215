"""Options of ``damper reproduce``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from damper.cli.options import EngineOptions


@dataclass
class Reproduce:
    """Train what is missing of the paper's tables and figures, evaluate it on the fixed seeds, keep the records.

    The same command goes on with what was killed, fills what was deleted, and changes nothing else.
    """

    experiments: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which, by the names that --list shows."""
    list: bool = False
    """Show the experiments with what is done, what is missing and how long that takes."""
    tasks: tuple[str, ...] = ()
    """Only these tasks (or other environments)."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    backbones: tuple[Literal["td3", "sac"], ...] = ()
    """Only these backbones."""
    seeds: int | None = None
    """How many of the protocol's seeds; the experiment's own number by default."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    protocol: Literal["pave", "damper"] = "pave"
    """Published settings."""
    steps: int | None = None
    """Another budget than the paper's; such records are kept apart."""
    units: Literal["policy", "environment"] | None = None
    """In which the temporal loss compares actions; give --methods that have one."""
    episodes: int = 10
    """Evaluation episodes per agent, on the protocol's fixed seeds."""
    results: Path = Path("results")
    """The store of records."""
    out: Path = Path("runs/reproduce")
    """Where runs live."""
    population: int | None = None
    """The most agents to train as one batch."""
    workers: int = 1
    """How many populations to train at once, each in a process of its own on this machine."""
    ray: str | None = None
    """Hand populations to a Ray cluster: its address, "auto", or "local"."""
    ray_cores: int = 1
    """Processor cores for each population there; with --device cuda each has a GPU to itself as well."""
    engine: EngineOptions = field(default_factory=EngineOptions)
