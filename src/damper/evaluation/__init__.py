"""Deterministic evaluation: episodes, filters, records."""

from __future__ import annotations

from damper.evaluation.evaluate import Evaluation, evaluate
from damper.filters import LowPass, SlewRate

__all__ = ["Evaluation", "LowPass", "SlewRate", "evaluate"]
