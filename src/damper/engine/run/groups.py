"""Agents that differ only by seed belong together: what tables show a row of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def groups(agents: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Label -> indices of the agents that share all settings but the seed, in order of first appearance."""
    found: dict[str, list[int]] = {}
    for index, agent in enumerate(agents):
        own = {name: value for name, value in agent.items() if name not in ("seed", "method")}
        parts = [agent["method"]] if "method" in agent else []
        label = " ".join([*parts, *(f"{name}={value:g}" for name, value in own.items())]) or "all"
        found.setdefault(label, []).append(index)
    return found


def mean(values: Sequence[float | None], members: Sequence[int]) -> float | None:
    """Mean over the members that have a value."""
    known = [value for index in members if (value := values[index]) is not None]
    return sum(known) / len(known) if known else None
