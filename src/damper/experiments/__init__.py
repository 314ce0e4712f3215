"""Comparisons, the paper's experiments as data, and the store of their results."""

from __future__ import annotations

from damper.experiments.compare import Comparison, compare
from damper.experiments.paper_experiments import EXPERIMENTS, Experiment, Request
from damper.experiments.reproduce import Outcome, reproduce
from damper.experiments.store import Record, Store

__all__ = [
    "EXPERIMENTS",
    "Comparison",
    "Experiment",
    "Outcome",
    "Record",
    "Request",
    "Store",
    "compare",
    "reproduce",
]
