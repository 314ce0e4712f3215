"""damper: smooth actor-critic policies without a penalty weight to tune."""

from __future__ import annotations

from damper import rules
from damper.backward import backward
from damper.errors import DamperError
from damper.losses import temporal_loss
from damper.rules import RULES, GradientReport, combine

__version__ = "0.1.0"
__all__ = ["RULES", "DamperError", "GradientReport", "__version__", "backward", "combine", "rules", "temporal_loss"]
