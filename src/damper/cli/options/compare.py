"""Options of ``damper compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from damper.cli.options import default
from damper.cli.options.training import METHOD_LIST, TrainingOptions


@dataclass
class Compare(TrainingOptions):
    """Compare methods on your own task, under the same conditions.

    The result is one table of smoothness and return, and pictures. The same command resumes a
    comparison that was stopped.
    """

    methods: Annotated[tuple[str, ...], tyro.conf.arg(help=METHOD_LIST)] = ("plain", "damper")
    seeds: int = 3
    """Number of seeds per method: the protocol's first seeds, or 0, 1, ..."""
    episodes: int = 10
    """Evaluation episodes per agent, on the protocol's fixed seeds."""
    out: Annotated[Path | None, default("a name under runs/ made from the settings")] = None
    """Where runs, records and pictures go."""
    video: Annotated[Path | None, default("none")] = None
    """Film the methods side by side, action traces below: a .gif, or an .mp4."""
    video_steps: int = 500
    """Maximum number of steps in a video."""
