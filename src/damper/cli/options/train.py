"""Options of ``damper train``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from damper.cli.options import default
from damper.cli.options.training import METHOD_LIST, TrainingOptions


@dataclass
class Train(TrainingOptions):
    """Train a smooth policy, or several: one per seed and combination of settings.

    The same command resumes a run that was stopped.
    """

    method: Annotated[str, tyro.conf.arg(help=METHOD_LIST)] = "damper"
    auxiliary: Annotated[str | None, default("the method's own")] = None
    """The smoothness loss on the actor: temporal, caps, grad-caps, asap, ..."""
    rule: Annotated[str | None, default("the method's own")] = None
    """How its gradient is combined with the actor's own: damper, scalarization, pcgrad, ..."""
    critic: Annotated[str | None, default("the method's own")] = None
    """The smoothness loss on the critic: pave, l2c2."""
    seeds: int = 1
    """Number of seeds, an agent each: the protocol's first seeds, or 0, 1, ..."""
    preset: str = "paper"
    """Which published weights of the method."""
    out: Annotated[Path | None, default("a name under runs/ made from the settings")] = None
    """The run's folder."""
    tensorboard: bool = False
    """Write TensorBoard files too."""
