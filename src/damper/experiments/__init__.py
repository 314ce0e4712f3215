"""Comparisons and the paper's experiments."""

from __future__ import annotations

from damper.experiments.compare import Comparison, compare

__all__ = ["Comparison", "compare"]
