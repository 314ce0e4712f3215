"""What "smooth" means: a small file per method, pure functions of networks, batch and noise."""

from __future__ import annotations

from damper.interface import Batch, Critic, Loss, Noise, NoiseDraws, Policy
from damper.losses.temporal import temporal_loss

__all__ = ["Batch", "Critic", "Loss", "Noise", "NoiseDraws", "Policy", "temporal_loss"]
