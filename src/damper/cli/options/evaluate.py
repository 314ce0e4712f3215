"""Options of ``damper evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from damper.cli.options import LEFT_OUT, Source, default


@dataclass
class Evaluate:
    """Measure what a policy does, in deterministic episodes: table, records, action traces, and a picture of them."""

    source: Source
    """A run's folder, a policy file, a Stable-Baselines3 zip (with or without its ending), or an ONNX file."""
    env: Annotated[str | None, default("the one that the source tells")] = None
    """The environment, where the source does not tell it or another one is wanted."""
    episodes: int = 10
    """How many, on the protocol's fixed seeds."""
    seed_list: Annotated[tuple[int, ...], default("the first --episodes fixed ones", aliases=("--seed",))] = LEFT_OUT
    """Which seeds, instead."""
    filter: Annotated[str | None, default("none")] = None
    """Filter the executed action: low-pass:ALPHA or slew-rate:LIMIT."""
    backend: Annotated[Literal["gymnasium", "envpool"], tyro.conf.arg(aliases=("--envs",))] = "gymnasium"
    """Who steps the environments."""
    out: Annotated[Path | None, default("evaluation/ in the run's folder, or FILE-evaluation/ beside the file")] = None
    """Where to write."""
    video: Annotated[Path | None, default("none")] = None
    """Film the first episode of each setting's first agent, the action trace below: a .gif, or an .mp4."""
    beside: Annotated[tuple[Path, ...], default("nothing")] = LEFT_OUT
    """Other sources to show beside it in the video; --vecnormalize and --trust are not for them."""
    video_steps: int = 500
    """The most steps that a video shows."""
    vecnormalize: Annotated[Path | None, default("none")] = None
    """Statistics that VecNormalize saved, for a Stable-Baselines3 zip."""
    trust: bool = False
    """Allow unpickling what cannot be read otherwise: it runs whatever code the file carries."""
