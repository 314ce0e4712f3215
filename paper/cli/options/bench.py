"""Options of ``python -m paper bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from damper.cli.options import LEFT_OUT, default, one_of

PARTS = ("update", "peers", "scaling", "end-to-end", "floor", "sb3")


@dataclass
class Bench:
    """Measure speed: everything compared runs in one process, in alternation.

    Ratios are medians over the rounds.

    update: the paper's update-time table in its protocol, beside its numbers. peers: whole updates
        beside
    Stable-Baselines3's and SBX's. scaling: cost by population size. end-to-end: steps per second of
    training. floor: distance from the limit set by the machine's matrix rate and bandwidth. sb3:
    our SB3 classes beside SB3's.
    """

    what: tyro.conf.Positional[
        Annotated[str, one_of(*PARTS, "all"), tyro.conf.arg(metavar="[WHAT]")]
    ] = "all"
    """Which measurement."""
    device: Annotated[str, default("a GPU where there is one")] = "auto"
    """Where updates run, as in torch: cpu, cuda."""
    mode: Annotated[
        Literal["eager", "compile", "graph", "compile-graph"] | None,
        default(
            "eager on a CPU, compile-graph on a GPU; there update and scaling also measure graph"
        ),
    ] = None
    """How the engine's updates run."""
    tf32: Annotated[bool | None, default("off; on a GPU update and scaling measure both")] = None
    """Matrix products in TF32 on a GPU."""
    backbones: Annotated[
        tuple[Literal["td3", "sac", "ddpg", "tqc", "ppo"], ...],
        default("td3 sac, and ppo too for sb3"),
    ] = LEFT_OUT
    """Which backbones; sb3 also takes ddpg and tqc."""
    methods: Annotated[
        tuple[str, ...], default("the paper's seven for update, plain and damper elsewhere")
    ] = LEFT_OUT
    """Which methods."""
    iterations: Annotated[
        int | None, default("1000 (the paper's number) on a GPU, 100 on a CPU")
    ] = None
    """Timed updates of each subject."""
    rounds: int = 20
    """Rounds in which the subjects alternate."""
    clock: Literal["wall", "processor"] = "wall"
    """Wall-clock time, or processor time of all threads together."""
    sizes: Annotated[
        tuple[int, ...], default("1 5 10 35 for scaling (1 5 35 100 on a GPU), 1 for floor")
    ] = LEFT_OUT
    """Population sizes."""
    task: str = "Hopper"
    """The task whose random transitions are the batch."""
    tasks: tuple[str, ...] = ("Pendulum", "Hopper")
    """Tasks of end-to-end."""
    agents: int = 1
    """Agents of end-to-end."""
    steps: int = 600
    """Steps per agent of end-to-end."""
    env_threads: Annotated[int | None, default("one per core")] = None
    """EnvPool's threads in end-to-end."""
    threads: Annotated[int | None, default("torch's own choice")] = None
    """Threads of torch on the CPU."""
    out: Path = Path("bench")
    """Where tables, plots and JSON go."""
    results: Annotated[Path | None, default("not kept")] = None
    """Also keep update times in this store of records."""

    show: Annotated[tuple[Path, ...], default("measure")] = LEFT_OUT
    """Print these saved measurements as Markdown, and measure nothing."""
