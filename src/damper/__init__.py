"""damper: smooth actor-critic policies without a penalty weight to tune."""

from __future__ import annotations

from damper import metrics, rules, theory
from damper.backward import backward
from damper.engine.run import Run
from damper.engine.train import train
from damper.errors import DamperError
from damper.evaluation import Evaluation, evaluate
from damper.losses import temporal_loss
from damper.methods import METHODS, Method
from damper.metrics import smoothness
from damper.rules import RULES, GradientReport, combine
from damper.version import __version__

__all__ = [
    "METHODS",
    "RULES",
    "DamperError",
    "Evaluation",
    "GradientReport",
    "Method",
    "Run",
    "__version__",
    "backward",
    "combine",
    "evaluate",
    "metrics",
    "rules",
    "smoothness",
    "temporal_loss",
    "theory",
    "train",
]
