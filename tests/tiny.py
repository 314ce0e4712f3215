"""A run small enough to train inside a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import damper

SETTINGS: dict[str, Any] = {
    "net_arch": (16, 16),
    "learning_starts": 50,
    "batch_size": 16,
    "log_every": 100,
    "checkpoint_every": 100,
    "progress": False,
}


def train(
    out: Path, method: str = "damper", backbone: str = "td3", steps: int = 300, **settings: Any
) -> damper.Run:
    """Train a tiny population on Pendulum-v1."""
    given = {**SETTINGS, "seeds": (0, 1), **settings}
    return damper.train("Pendulum-v1", backbone, method, steps=steps, out=out, **given)
