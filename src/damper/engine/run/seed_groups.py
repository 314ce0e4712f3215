"""Agents that differ only by seed, as groups: tables show one row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def group_by_settings(agents: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Label -> indices of the agents that share all settings but the seed, in order of first appearance."""
    groups: dict[str, list[int]] = {}
    for index, agent in enumerate(agents):
        settings = {name: value for name, value in agent.items() if name not in ("seed", "method")}
        parts = [agent["method"]] if "method" in agent else []
        shown = {name: value if isinstance(value, str) else f"{value:g}" for name, value in settings.items()}
        label = " ".join([*parts, *(f"{name}={value}" for name, value in shown.items())]) or "all"
        groups.setdefault(label, []).append(index)
    return groups


def group_mean(values: Sequence[float | None], members: Sequence[int]) -> float | None:
    """Mean over the members that have a value."""
    known = [value for index in members if (value := values[index]) is not None]
    return sum(known) / len(known) if known else None
