"""``damper train``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from damper.cli.options import EngineOptions, MethodOptions, chosen_seeds, given
from damper.engine.train import train
from damper.errors import DamperError
from damper.methods import components, compose


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
    options: MethodOptions = field(default_factory=MethodOptions)  # type: ignore[valid-type]
    """Settings of the method."""

    def _method(self) -> str:
        """The method with the parts named instead of its own."""
        named = {"auxiliary": self.auxiliary, "rule": self.rule, "critic": self.critic}
        changed = {part: value for part, value in named.items() if value is not None}
        if not changed:
            return self.method
        auxiliary, rule, critic = components(self.method)._replace(**changed)
        if auxiliary is None and rule is None:
            raise DamperError(
                f"critic must join an actor loss, but method {self.method!r} has none: use --method {critic}, or name "
                "an auxiliary too."
            )
        return compose(auxiliary or "temporal", rule, critic).name

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
