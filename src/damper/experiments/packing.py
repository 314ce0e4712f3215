"""Missing agents as few populations: seeds and swept values of one method, task and backbone are one batch."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from damper.engine.settings import Settings
from damper.errors import DamperError
from damper.experiments.grids import Wanted
from damper.experiments.identity import canonical, digest


@dataclass(frozen=True, eq=False)
class Job:
    """One population to train: complete settings, and the agents it stands for."""

    settings: Settings
    wanted: tuple[Wanted, ...]

    @property
    def name(self) -> str:
        """Its folder: the same agents, computed in the same way, always have the same one."""
        settings = self.settings
        how = (settings.compile, settings.graph, *sorted(agent.digest for agent in self.wanted))
        env = settings.env_id.replace("/", "_")
        return f"{env}-{settings.backbone}-{settings.method}-{digest(how)[:8]}"

    def folder(self, out: Path) -> Path:
        """Where its run lives; protocols side by side."""
        return out / str(self.settings.protocol) / self.name


def pack(missing: Iterable[Wanted], most: int | None = None) -> list[Job]:
    """Populations that together hold exactly the missing agents, each no larger than ``most``."""
    if most is not None and most < 1:
        raise DamperError(f"population must be at least 1 agent, but {most} was given.")
    families: dict[Hashable, list[Wanted]] = {}
    for agent in missing:
        families.setdefault(_family(agent.settings), []).append(agent)
    jobs = []
    for family in families.values():
        for name, part in _by_one_setting(family):
            for agents in _rectangles(part, name):
                jobs += [_job(chunk, name) for chunk in _chunks(agents, name, most)]
    return jobs


def _family(settings: Settings) -> Hashable:
    """What agents of one population share: everything but the seed and the numbers of the method."""
    record = {**settings.record(), "seeds": None}
    record["method_settings"] = {k: None if _number(v) else v for k, v in settings.method_settings.items()}
    return digest(canonical(record))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _by_one_setting(family: Sequence[Wanted]) -> list[tuple[str | None, list[Wanted]]]:
    """Parts in which one setting of the method varies at most; its name, or None."""
    rows = [dict(agent.settings.method_settings) for agent in family]
    counts = {name: len({row[name] for row in rows}) for name in rows[0] if _number(rows[0][name])}
    swept = max(counts, key=lambda name: counts[name], default=None)
    if swept is None or counts[swept] == 1:
        return [(None, list(family))]
    parts: dict[Hashable, list[Wanted]] = {}
    for agent, row in zip(family, rows, strict=True):
        parts.setdefault(tuple(row[name] for name in counts if name != swept), []).append(agent)
    return [(swept, part) for part in parts.values()]


def _value(agent: Wanted, name: str | None) -> Any:
    return None if name is None else agent.settings.method_settings[name]


def _rectangles(part: Sequence[Wanted], name: str | None) -> list[list[Wanted]]:
    """Products of values and seeds that cover the part exactly: by equal seed sets or by equal value sets.

    A population is a product of lists. Values that miss the same seeds share one, or seeds that miss the same values
    do: whichever gives fewer.
    """
    cells = {(_value(agent, name), agent.settings.seeds[0]): agent for agent in part}
    by_value = _equal_sides([(value, seed) for value, seed in cells])
    by_seed = _equal_sides([(seed, value) for value, seed in cells])
    if len(by_seed) < len(by_value):
        return [[cells[value, seed] for value in values for seed in seeds] for seeds, values in by_seed]
    return [[cells[value, seed] for value in values for seed in seeds] for values, seeds in by_value]


def _equal_sides(cells: Sequence[tuple[Any, Any]]) -> list[tuple[list[Any], list[Any]]]:
    """Left entries that occur with the same right entries, together."""
    partners: dict[Any, list[Any]] = {}
    for left, right in cells:
        partners.setdefault(left, []).append(right)
    groups: dict[frozenset[Any], list[Any]] = {}
    for left, rights in partners.items():
        groups.setdefault(frozenset(rights), []).append(left)
    return [(lefts, partners[lefts[0]]) for lefts in groups.values()]


def _chunks(agents: Sequence[Wanted], name: str | None, most: int | None) -> list[list[Wanted]]:
    """A rectangle cut into rectangles of no more than ``most`` agents, across its longer list first."""
    if most is None or len(agents) <= most:
        return [list(agents)]
    values = list(dict.fromkeys(_value(agent, name) for agent in agents))
    seeds = list(dict.fromkeys(agent.settings.seeds[0] for agent in agents))
    by_values = len(values) >= len(seeds)
    side: list[Any] = values if by_values else seeds
    first = set(side[: len(side) // 2])
    halves: tuple[list[Wanted], list[Wanted]] = ([], [])
    for agent in agents:
        key = _value(agent, name) if by_values else agent.settings.seeds[0]
        halves[key not in first].append(agent)
    return [chunk for half in halves for chunk in _chunks(half, name, most)]


def _job(agents: Sequence[Wanted], name: str | None) -> Job:
    """The population of a rectangle."""
    seeds = tuple(dict.fromkeys(agent.settings.seeds[0] for agent in agents))
    own: Mapping[str, Any] = agents[0].settings.method_settings
    if name is not None:
        values = tuple(dict.fromkeys(_value(agent, name) for agent in agents))
        own = {**own, name: values if len(values) > 1 else values[0]}
    return Job(replace(agents[0].settings, seeds=seeds, method_settings=own), tuple(agents))
