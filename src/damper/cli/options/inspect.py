"""Options of ``damper inspect``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from damper.cli.options import LEFT_OUT, default

Log = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="LOG")]]
Other = tyro.conf.Positional[Annotated[Path | None, default("none", metavar="[LOG]")]]


@dataclass
class Inspect:
    """Measure a recorded log: where actions shake, and whether observations shake with them."""

    log: Log
    """A CSV or NPZ file of one episode, a row per step."""
    other: Other = None
    """Another log of the same actions to show beside it, such as one of another policy."""
    dt: Annotated[float | None, default("from a column with times; without, per step")] = None
    """Seconds per step."""
    actions: Annotated[tuple[str, ...], default("all that are not named otherwise")] = LEFT_OUT
    """Columns with actions; the name of an NPZ array stands for its columns."""
    observations: Annotated[tuple[str, ...], default("none")] = LEFT_OUT
    """Columns with observations, to see which move together with an action."""
    time: Annotated[str | None, default("time, t, timestamp or stamp")] = None
    """Column with seconds."""
    low: Annotated[tuple[float, ...], default("none: no saturation")] = LEFT_OUT
    """Lower bounds of the actions, one number or one each."""
    high: Annotated[tuple[float, ...], default("none")] = LEFT_OUT
    """Upper bounds."""
    above: Annotated[float | None, default("a tenth of the control rate")] = None
    """Frequency above which motion is shaking, in Hz (in cycles per step without --dt)."""
    out: Annotated[Path | None, default("LOG-inspection/ beside the first log")] = None
    """Where to write."""
