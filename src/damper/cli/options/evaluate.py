"""Options of ``damper evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from damper.cli.options import LEFT_OUT, Source, default


@dataclass
class Evaluate:
    """Evaluate a policy in deterministic episodes: table, records, action traces, pictures."""

    source: Source
    """A run's folder, a policy file, a Stable-Baselines3 zip, or an ONNX file."""
    env: Annotated[str | None, default("the one recorded in the source")] = None
    """The environment, if the source does not record one or to use another, in the wrappers that
    the source records."""
    episodes: int = 10
    """Number of episodes, on the protocol's fixed seeds."""
    seed_list: Annotated[
        tuple[int, ...], default("the first --episodes fixed ones", aliases=("--seed",))
    ] = LEFT_OUT
    """These seeds, in place of --episodes."""
    filter: Annotated[str | None, default("none")] = None
    """Filter the executed action: low-pass:ALPHA or slew-rate:LIMIT."""
    backend: Literal["gymnasium", "envpool"] = "gymnasium"
    """What steps the environments."""
    out: Annotated[
        Path | None, default("evaluation/ in the run's folder, or FILE-evaluation/ beside the file")
    ] = None
    """Where to write; --env and --filter are part of the folder's name."""
    video: Annotated[Path | None, default("none")] = None
    """Film the first episode of each setting's first agent, with actions: a .gif, or an .mp4."""
    beside: Annotated[tuple[Path, ...], default("nothing")] = LEFT_OUT
    """Other sources to show beside it in the video, without --vecnormalize and --trust."""
    video_steps: int = 500
    """Maximum number of steps in a video."""
    vecnormalize: Annotated[Path | None, default("none")] = None
    """Saved VecNormalize statistics, for a Stable-Baselines3 zip."""
    trust: bool = False
    """Allow unpickling what cannot be read otherwise: it runs whatever code the file contains."""
