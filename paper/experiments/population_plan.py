"""Which agents train together: packs the missing agents into as few populations as possible."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from damper.engine.settings import Settings, is_number, population_settings
from damper.errors import DamperError
from damper.methods import METHODS, find_method
from damper.provenance import canonical, digest
from damper.rules import can_share_population, find
from paper.experiments.catalogue import AgentSpec


@dataclass(frozen=True, eq=False)
class Job:
    """One population to train: its complete settings, and the agents wanted from it."""

    settings: Settings
    wanted: tuple[AgentSpec, ...]

    @property
    def name(self) -> str:
        """The name of its folder, the same for the same agents computed in the same way."""
        settings = self.settings
        how = (settings.compile, settings.graph, *sorted(agent.digest for agent in self.wanted))
        return f"{settings.env_in_paths}-{settings.backbone}-{settings.method}-{digest(how)[:8]}"

    def folder(self, out: Path) -> Path:
        """The folder of its run: ``out/<protocol>/<name>``."""
        return out / str(self.settings.protocol) / self.name


def pack(missing: Iterable[AgentSpec], max_agents: int | None = None) -> list[Job]:
    """Populations that together hold exactly the missing agents."""
    if max_agents is not None and max_agents < 1:
        raise DamperError(f"population must be at least 1 agent, but {max_agents} was given.")
    families: dict[Hashable, list[AgentSpec]] = {}
    for agent in missing:
        families.setdefault(_family(agent.settings), []).append(agent)
    return [
        Job(population_settings([agent.settings for agent in part]), tuple(part))
        for family in families.values()
        for part in _parts(family, max_agents)
    ]


def _family(settings: Settings) -> Hashable:
    """What agents of a population share: all but seed, method's numbers and, on a GPU, rule."""
    given = settings.method_settings.items()
    kinds = {name: None if is_number(value) else value for name, value in given}
    record = {**settings.record(), "seeds": None, "method_settings": kinds}
    # On a CPU plain agents would pay for an auxiliary gradient that they do not use.
    if settings.device != "cpu" and _rule_may_differ(settings):
        record |= {"method": None, "method_settings": None}
    return digest(canonical(record))


def _rule_may_differ(settings: Settings) -> bool:
    """Whether agents with these settings can share a batch."""
    method = find_method(settings.method)
    if not method.losses:
        return True
    if method.losses != METHODS["damper"].losses or method.rule is None:
        return False
    defaults, given = method.settings(), settings.method_settings.items()
    usual = all(is_number(value) or value == defaults[name] for name, value in given)
    return usual and can_share_population(find(method.rule))


def _parts(family: Sequence[AgentSpec], max_agents: int | None) -> list[Sequence[AgentSpec]]:
    """Split into as few parts of at most ``max_agents`` agents as possible."""
    count = -(-len(family) // (max_agents or len(family)))
    ends = [i * len(family) // count for i in range(count + 1)]
    return [family[start:end] for start, end in itertools.pairwise(ends)]
