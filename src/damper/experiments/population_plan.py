"""Missing agents as few populations: what one batch can train is one population."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from damper.engine.settings import Settings, is_number, population_settings
from damper.errors import DamperError
from damper.experiments.identity import canonical, digest
from damper.experiments.paper_experiments import AgentSpec
from damper.methods import METHODS, find_method
from damper.protocols import recorded_protocol
from damper.rules import find, mixes


@dataclass(frozen=True, eq=False)
class Job:
    """One population to train: complete settings, and the agents it stands for."""

    settings: Settings
    wanted: tuple[AgentSpec, ...]

    @property
    def name(self) -> str:
        """Its folder: the same agents, computed in the same way, always have the same one."""
        settings = self.settings
        how = (settings.compile, settings.graph, *sorted(agent.digest for agent in self.wanted))
        env = settings.env_id.replace("/", "_")
        return f"{env}-{settings.backbone}-{settings.method}-{digest(how)[:8]}"

    def folder(self, out: Path) -> Path:
        """Where its run lives; protocols side by side."""
        return out / str(recorded_protocol(self.settings.protocol)) / self.name


def pack(missing: Iterable[AgentSpec], most: int | None = None) -> list[Job]:
    """Populations that together hold exactly the missing agents, each no larger than ``most``."""
    if most is not None and most < 1:
        raise DamperError(f"population must be at least 1 agent, but {most} was given.")
    families: dict[Hashable, list[AgentSpec]] = {}
    for agent in missing:
        families.setdefault(_family(agent.settings), []).append(agent)
    return [
        Job(population_settings([agent.settings for agent in part]), tuple(part))
        for family in families.values()
        for part in _parts(family, most)
    ]


def _family(settings: Settings) -> Hashable:
    """What agents of one population share: everything but the seed, the method's numbers, and on a GPU the rule.

    On a CPU, which a population of plain agents fills as well, those would pay for a gradient that they do not use.
    """
    kinds = {name: None if is_number(value) else value for name, value in settings.method_settings.items()}
    record = {**settings.record(), "seeds": None, "method_settings": kinds}
    if settings.device != "cpu" and _rule_may_differ(settings):
        record |= {"method": None, "method_settings": None}
    return digest(canonical(record))


def _rule_may_differ(settings: Settings) -> bool:
    """Whether agents with these settings can share a batch with agents of other rules on the temporal loss."""
    method = find_method(settings.method)
    defaults = method.settings()
    usual = all(is_number(value) or value == defaults[name] for name, value in settings.method_settings.items())
    if not method.losses:
        return True
    return usual and method.losses == METHODS["damper"].losses and method.rule is not None and mixes(find(method.rule))


def _parts(family: Sequence[AgentSpec], most: int | None) -> list[Sequence[AgentSpec]]:
    """As few parts of no more than ``most`` agents as there can be, as equal as they can be."""
    count = -(-len(family) // (most or len(family)))
    ends = [i * len(family) // count for i in range(count + 1)]
    return [family[start:end] for start, end in itertools.pairwise(ends)]
