"""Groups of agents that differ only in seed, each shown as one row of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any


def group_by_settings(agents: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Label -> indices of the agents that share all settings but the seed.

    Labels show numbers with six digits, or all digits where six would make values look the same.
    """
    groups: dict[frozenset[tuple[str, Any]], list[int]] = {}
    for index, agent in enumerate(agents):
        key = frozenset((name, value) for name, value in agent.items() if name != "seed")
        groups.setdefault(key, []).append(index)
    columns: dict[str, set[Any]] = {}
    for name, value in chain.from_iterable(groups):
        columns.setdefault(name, set()).add(value)
    exact = {name for name, values in columns.items() if len({*map(_shown, values)}) < len(values)}
    return {_label(agents[members[0]], exact): members for members in groups.values()}


def _label(agent: Mapping[str, Any], exact: Collection[str]) -> str:
    parts = [agent["method"]] if "method" in agent else []
    for name, value in agent.items():
        if name not in ("seed", "method"):
            parts.append(f"{name}={_shown(value, name in exact)}")
    return " ".join(parts) or "all"


def _shown(value: Any, exact: bool = False) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if exact else f"{value:g}"


def group_mean(values: Sequence[float | None], members: Sequence[int]) -> float | None:
    """Mean over the members that have a value; None if none has."""
    numbers = [value for index in members if (value := values[index]) is not None]
    return sum(numbers) / len(numbers) if numbers else None
