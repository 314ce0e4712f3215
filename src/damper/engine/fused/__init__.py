"""Gradients with one forward pass per network, for compiled updates; ``Fused`` is the way in."""

from damper.engine.fused.gradients import Fused as Fused
