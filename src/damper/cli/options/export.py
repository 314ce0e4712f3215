"""Options of ``damper export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from damper.cli.options import Source, default


@dataclass
class Export:
    """Write a policy to a file that runs anywhere, with tanh, action range and normalisation."""

    source: Source
    """A run's folder, a policy file, or a Stable-Baselines3 zip (its ending may be left out)."""
    to: Path
    """The file to write: policy.onnx, or policy.pt2 for PyTorch; its contract goes beside it."""
    agent: Annotated[str, tyro.conf.arg(metavar="INT|best")] = "best"
    """Which agent of a run; best: the only one, or that with the highest mean return on record."""
    env: Annotated[str | None, default("the one recorded in the source")] = None
    """The environment's id, if the source has none; the contract's smoothness is measured there."""
    vecnormalize: Annotated[Path | None, default("none")] = None
    """Saved VecNormalize statistics to include."""
    check: bool = True
    """Run the file on thousands of observations and compare with the original."""
    trust: bool = False
    """Allow unpickling: it runs whatever code the file contains."""
    episodes: int = 3
    """Episodes for the contract's smoothness, if the source has no evaluation; 0 for none."""
    force: bool = False
    """Overwrite files of these names even if no export wrote them."""
