"""Options of ``damper compare``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from damper.cli.options import LEFT_OUT, EngineOptions, Env, Protocol, SeedList, Steps, default
from damper.cli.options.method import METHOD_LIST, METHOD_SETTINGS, MethodOptions


@dataclass
class Compare:
    """Compare methods on your own task, under the same conditions: one table of smoothness and return, and pictures.

    The same command resumes a comparison that was stopped.
    """

    env: Env
    """A Gymnasium id (Pendulum-v1) or a task of the paper (Hopper)."""
    methods: Annotated[tuple[str, ...], tyro.conf.arg(help=METHOD_LIST)] = ("plain", "damper")
    backbone: Literal["td3", "sac"] = "td3"
    """The actor-critic algorithm."""
    seeds: int = 3
    """Number of seeds per method: the protocol's first seeds, or 0, 1, ..."""
    seed_list: SeedList = LEFT_OUT
    """These seeds, in place of --seeds."""
    steps: Steps = None
    """Environment steps per agent."""
    protocol: Protocol = None
    """Published settings to start from: PAVE's, which the paper follows, or those of DAMPER's authors' code."""
    episodes: int = 10
    """Evaluation episodes per agent, on the protocol's fixed seeds."""
    out: Annotated[Path | None, default("a name under runs/ made from the settings")] = None
    """Where runs, records and pictures go."""
    video: Annotated[Path | None, default("none")] = None
    """Film the methods side by side, action traces below: a .gif, or an .mp4."""
    video_steps: int = 500
    """Maximum number of steps in a video."""
    engine: EngineOptions = field(default_factory=EngineOptions)
    settings: Annotated[
        MethodOptions,  # type: ignore[valid-type]
        tyro.conf.arg(help=METHOD_SETTINGS),
    ] = field(default_factory=MethodOptions)
