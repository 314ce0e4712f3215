"""Options of ``damper train``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from damper.cli.options import LEFT_OUT, EngineOptions, Env, Protocol, SeedList, Steps, default
from damper.cli.options.method import METHOD_LIST, METHOD_SETTINGS, MethodOptions


@dataclass
class Train:
    """Train a smooth policy; or several at once, one per seed and per combination of settings given several values.

    The same command resumes a run that was stopped.
    """

    env: Env
    """A Gymnasium id (Pendulum-v1) or a task of the paper (Hopper)."""
    backbone: Literal["td3", "sac"] = "td3"
    """The actor-critic algorithm."""
    method: Annotated[str, tyro.conf.arg(help=METHOD_LIST)] = "damper"
    auxiliary: Annotated[str | None, default("the method's own")] = None
    """The smoothness loss on the actor: temporal, caps, grad-caps, asap, ..."""
    rule: Annotated[str | None, default("the method's own")] = None
    """How its gradient is combined with the actor's own: damper, scalarization, pcgrad, ..."""
    critic: Annotated[str | None, default("the method's own")] = None
    """The smoothness loss on the critic: pave, l2c2."""
    seeds: int = 1
    """Number of seeds, an agent each: the protocol's first seeds, or 0, 1, ..."""
    seed_list: SeedList = LEFT_OUT
    """These seeds, in place of --seeds."""
    steps: Steps = None
    """Environment steps per agent."""
    protocol: Protocol = None
    """Published settings to start from: PAVE's, which the paper follows, or those of DAMPER's authors' code."""
    preset: str = "paper"
    """Which published weights of the method."""
    out: Annotated[Path | None, default("a name under runs/ made from the settings")] = None
    """The run's folder."""
    tensorboard: bool = False
    """Write TensorBoard files too."""
    engine: EngineOptions = field(default_factory=EngineOptions)
    settings: Annotated[
        MethodOptions,  # type: ignore[valid-type]
        tyro.conf.arg(help=METHOD_SETTINGS),
    ] = field(default_factory=MethodOptions)
