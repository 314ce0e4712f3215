"""Options of ``damper train``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from damper.cli.options import EngineOptions
from damper.cli.options.method import MethodOptions


@dataclass
class Train:
    """Train a population: one agent per seed and per combination of the settings given as lists.

    The same command goes on with a killed run.
    """

    env: tyro.conf.Positional[str]
    """A Gymnasium id (Pendulum-v1) or a task of the paper (Hopper)."""
    backbone: Literal["td3", "sac"] = "td3"
    """The actor-critic algorithm."""
    method: str = "damper"
    """How to make it smooth: plain, damper, caps, ..., or parts joined as in damper+grad-caps+pave."""
    auxiliary: str | None = None
    """Instead of the method's own actor loss another's (temporal, caps, grad-caps, asap, ...)."""
    rule: str | None = None
    """Instead of its own rule another to join that loss's gradient to the native one."""
    critic: str | None = None
    """Instead of its own critic loss another's (pave, l2c2)."""
    seeds: int = 1
    """How many seeds: the protocol's first ones, or 0, 1, ..."""
    seed_list: tuple[int, ...] = ()
    """Which seeds, instead."""
    steps: int | None = None
    """Environment steps per agent; the paper's budget for its tasks."""
    protocol: Literal["pave", "damper"] | None = None
    """Published settings to start from."""
    preset: str = "paper"
    """Which published weights of the method."""
    out: Path | None = None
    """The run's folder."""
    tensorboard: bool = False
    """Write TensorBoard files too."""
    engine: EngineOptions = field(default_factory=EngineOptions)
    settings: MethodOptions = field(default_factory=MethodOptions)  # type: ignore[valid-type]
    """Settings of the method."""
