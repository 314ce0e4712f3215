"""``damper train``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from damper.cli.options import EngineOptions, MethodOptions, chosen_seeds, given
from damper.engine.train import train
from damper.methods import compose


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
    """Instead of a method, its parts: whose actor loss (temporal, caps, grad-caps, asap, ...)."""
    rule: str | None = None
    """... which rule joins its gradient to the native one."""
    critic: str | None = None
    """... and whose critic loss (pave, l2c2)."""
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
    options: MethodOptions = field(default_factory=MethodOptions)  # type: ignore[valid-type]
    """Settings of the method."""

    def _method(self) -> str:
        if self.auxiliary is None and self.rule is None and self.critic is None:
            return self.method
        return compose(self.auxiliary or "temporal", self.rule or "damper", self.critic).name

    def run(self) -> None:
        """Train, then say what to do next."""
        settings: dict[str, Any] = given(self.engine, self.options)
        run = train(
            self.env,
            self.backbone,
            self._method(),
            chosen_seeds(self.seeds, self.seed_list),
            self.steps,
            self.protocol,
            self.out,
            tensorboard=self.tensorboard,
            preset_name=self.preset,
            **settings,
        )
        console = Console()
        for agent, update in run.manifest.get("frozen", {}).items():
            console.print(f"agent {agent} was frozen at update {update}: its gradient was not finite", style="yellow")
        console.print(f"{len(run.agents)} policies in {run.path}; next: damper evaluate {run.path}", highlight=False)
