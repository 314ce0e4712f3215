"""Options of ``python -m paper reproduce``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from damper.cli.options import LEFT_OUT, PROTOCOL, SeedList, default
from damper.cli.options.training import EngineOptions


@dataclass
class ReproduceEngineOptions(EngineOptions):  # type: ignore[misc]
    """Settings of the algorithm and the engine, with Stable-Baselines3's names."""

    device: Annotated[
        str | None, default("a GPU where there is one, here or in the Ray cluster")
    ] = None
    """Where to train, as in torch: cpu, cuda."""


@dataclass
class Reproduce:
    """Train what is missing of the paper's tables and figures, and keep its records.

    The same command resumes what was killed, trains what was deleted, and changes nothing else.
    """

    experiments: tyro.conf.Positional[
        Annotated[tuple[str, ...], default("none", metavar="[EXPERIMENTS]")]
    ] = ()
    """Which experiments, by the names that --list shows."""
    list: bool = False
    """Show the experiments with what is done, what is missing and how long that takes."""
    tasks: Annotated[tuple[str, ...], default("all")] = LEFT_OUT
    """Only these tasks (or other environments)."""
    methods: Annotated[tuple[str, ...], default("all")] = LEFT_OUT
    """Only these methods."""
    backbones: Annotated[tuple[Literal["td3", "sac"], ...], default("all")] = LEFT_OUT
    """Only these backbones."""
    seeds: Annotated[int | None, default("the experiment's own number")] = None
    """How many of the protocol's seeds."""
    seed_list: SeedList = LEFT_OUT
    """These seeds, in place of --seeds."""
    protocol: Annotated[str, tyro.conf.arg(metavar=PROTOCOL)] = "pave"
    """Published settings."""
    steps: Annotated[int | None, default("the paper's")] = None
    """Another budget than the paper's; such records are kept apart."""
    units: Annotated[Literal["policy", "environment"] | None, default("policy")] = None
    """Units in which the temporal loss compares actions; only for --methods that have one."""
    episodes: int = 10
    """Evaluation episodes per agent, on the protocol's fixed seeds."""
    results: Path = Path("results")
    """The store of records."""
    out: Path = Path("runs/reproduce")
    """Folder of the runs."""
    population: Annotated[int | None, default("no limit")] = None
    """Maximum number of agents trained as one batch."""
    workers: Annotated[
        int | None, default("1; on a GPU one per population, up to 10 and half the cores")
    ] = None
    """Number of populations to train at once, one process each, on this machine."""
    ray: Annotated[str | None, default("train here")] = None
    """Hand populations to a Ray cluster: its address, "auto", or "local"."""
    ray_cores: int = 1
    """Processor cores for each population there; on GPUs each also gets one to itself."""
    engine: ReproduceEngineOptions = field(default_factory=ReproduceEngineOptions)
