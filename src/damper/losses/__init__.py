"""What "smooth" means: one small file per method."""

from __future__ import annotations

from damper.losses.temporal import temporal_loss

__all__ = ["temporal_loss"]
