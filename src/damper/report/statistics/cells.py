"""Records sorted into what may stand in one table: setups, and in them cells of agents that differ by seed only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from damper.errors import DamperError
from damper.experiments.identity import digest, published_settings
from damper.experiments.paper_experiments import TABLE_METHODS, WEIGHTS
from damper.experiments.records import CURVE_COLUMNS
from damper.experiments.store import Record
from damper.metrics import is_constant
from damper.protocols import PROTOCOLS, TRAINING_SEEDS, protocol_name, recorded_protocol
from damper.report.statistics.estimates import Array, Summary, nan_for_none, summarise
from damper.tasks import PAPER_TASKS

Settings = Mapping[str, Any]
MEASURES = {
    "return": "return",
    "smoothness": "sm",
    "mean_change": "mean |Δa|",
    "spectral_roughness": "roughness",
    "length": "length",
}
NEVER_NEGATIVE = tuple(measure for measure in MEASURES if measure != "return")
SMOOTHNESS = ("smoothness", "mean_change", "spectral_roughness")  # what one constant action makes perfect
SHOWN_CURVE_POINTS = 60
COMPARED = ("return", "smoothness", "mean_change")  # the measures by which methods are told apart


@dataclass(frozen=True, eq=False)
class Cell:
    """Agents of one backbone, task, method and settings, one record per seed."""

    backbone: str
    task: str
    method: str
    settings: Settings
    records: tuple[Record, ...]

    @property
    def place(self) -> str:
        """Task and backbone in words."""
        return f"{self.task}, {self.backbone.upper()}"

    @property
    def published(self) -> bool:
        """Whether the settings are the method's published ones for the task."""
        try:
            return self.settings == published_settings(self.method, self.task, self.backbone)
        except DamperError:  # a method that this installation does not have
            return False

    @property
    def seeds(self) -> list[int]:
        """Training seeds."""
        return [record.identity["seed"] for record in self.records]

    @property
    def frozen(self) -> list[int]:
        """Seeds whose gradient stopped being finite."""
        return [record.identity["seed"] for record in self.records if record.frozen is not None]

    @property
    def constant(self) -> list[int]:
        """Seeds that hold one action throughout each evaluation episode."""
        episodes = (record.episodes for record in self.records)
        alike = (is_constant(nan_for_none(own["mean_change"]), own["length"]) for own in episodes)
        return [seed for seed, constant in zip(self.seeds, alike, strict=True) if constant]

    @property
    def mostly_constant(self) -> bool:
        """Whether more than half of the agents hold one action throughout: then its smoothness is no result."""
        return 2 * len(self.constant) > len(self.records)

    @property
    def constant_note(self) -> str:
        """How many agents hold one action throughout, in words; empty where none does."""
        return f"constant action, {len(self.constant)} of {len(self.records)}" if self.constant else ""

    def scores(self, measure: str) -> Array:
        """A measure of every episode, ``[S, E]``; seeds with an unknown value are left out."""
        table = np.array([nan_for_none(record.episodes[measure]) for record in self.records])
        return np.asarray(table[np.isfinite(table).all(axis=1)])

    def known(self, measure: str) -> Cell:
        """The cell with the seeds that have the value."""
        sound = (bool(np.isfinite(nan_for_none(record.episodes[measure])).all()) for record in self.records)
        return replace(self, records=tuple(r for r, own in zip(self.records, sound, strict=True) if own))

    def means(self, measure: str) -> Array:
        """One value per seed."""
        return np.asarray(self.scores(measure).mean(axis=1))

    def summary(self, measure: str) -> Summary | None:
        """What a table prints; None if no seed has the value."""
        scores = self.scores(measure)
        return summarise(scores) if len(scores) else None

    def mean(self, measure: str) -> float:
        """The cell's mean, NaN if unknown."""
        means = self.means(measure)
        return float(means.mean()) if len(means) else float("nan")

    def curves(self) -> tuple[list[int], dict[str, Array]]:
        """Training: some steps of the longest curve, and per column the seeds' mean, lowest and highest ``[3, steps]``.

        A seed counts between its own first and last step; where none does there is a NaN.
        """
        longest = max((record.curve["step"] for record in self.records), key=len)
        places = np.unique(np.linspace(0, len(longest) - 1, min(SHOWN_CURVE_POINTS, len(longest))).astype(int))
        steps = [longest[i] for i in places]
        curves = {}
        for name in CURVE_COLUMNS if steps else ():
            seeds = [_interpolated(steps, record.curve, name) for record in self.records if name in record.curve]
            if seeds:
                table = np.ma.masked_invalid(seeds)
                curves[name] = np.ma.stack([table.mean(0), table.min(0), table.max(0)]).filled(np.nan)
        return steps, curves


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that was made under the same conditions: what one table may hold.

    Attributes:
        protocol: the published settings that training started from.
        deviations: what it did differently; empty for the paper's budget and settings.
        envs: who stepped the environments.
        physics: versions of the simulators.
        numerics: number format and update order.
        episodes: evaluation episodes per agent.
        cells: in the order of the paper's tables.
    """

    protocol: str | None
    deviations: Settings
    envs: str
    physics: Mapping[str, str]
    numerics: Settings
    episodes: int
    cells: tuple[Cell, ...] = field(default=())

    @property
    def agents(self) -> int:
        """How many agents stand in it."""
        return sum(len(cell.records) for cell in self.cells)

    @property
    def title(self) -> str:
        """Short, for a heading."""
        numerics = "".join(f", {n}" for n in ("tf32", "overlap") if self.numerics.get(n))
        numerics += f", {self.numerics['dtype']}" if self.numerics.get("dtype") != "float32" else ""
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.physics.items()))
        return f"{self.protocol or 'no protocol'}{self.unlike}{numerics} ({versions})"

    @property
    def unlike(self) -> str:
        """What differs from the protocol, as the end of a phrase."""
        return "".join(f", {name} {_value(value)}" for name, value in self.deviations.items())

    @property
    def key(self) -> str:
        """A short stable name."""
        protocol = recorded_protocol(self.protocol)
        return digest([protocol, self.deviations, self.envs, self.physics, self.numerics, self.episodes])[:8]

    def find(self, backbone: str, task: str, method: str, **changed: float) -> Cell | None:
        """The cell at a method's published settings, or with some of them changed."""
        wanted = {**published_settings(method, task, backbone), **changed}
        return self._index.get((backbone, task, method, digest(wanted)))

    def sweep(self, task: str) -> dict[float, Cell]:
        """TD3's cells of the fixed weights that are on record, by weight."""
        found = {weight: self.find("td3", task, "scalarization", weight=weight) for weight in WEIGHTS}
        return {weight: cell for weight, cell in found.items() if cell is not None}

    @cached_property
    def _index(self) -> dict[tuple[str, str, str, str], Cell]:
        return {(cell.backbone, cell.task, cell.method, digest(cell.settings)): cell for cell in self.cells}

    def tasks(self, backbone: str | None = None) -> list[str]:
        """Tasks that have a cell, the paper's first."""
        return list(dict.fromkeys(cell.task for cell in self.cells if backbone in (None, cell.backbone)))


def _interpolated(steps: Sequence[int], curve: Mapping[str, list[Any]], name: str) -> Array:
    """A seed's values at other steps, between its own ones; NaN outside them."""
    own, values = np.array(curve["step"], dtype=np.float64), nan_for_none(curve[name])
    sound = np.isfinite(values)
    if not sound.any():
        return np.full(len(steps), np.nan)
    return np.asarray(np.interp(steps, own[sound], values[sound], left=np.nan, right=np.nan))


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "×".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def setups(records: Iterable[Record]) -> list[Setup]:
    """All setups, those that keep to a protocol first; no record is in two, none is left out.

    The protocol that the paper says it follows comes before others, however many agents have which.
    """
    families: dict[str, list[Record]] = {}
    for record in records:
        identity = record.identity
        key = digest(
            [identity["protocol"], record.deviations, identity["envs"], identity["numerics"], identity["episodes"]]
        )
        families.setdefault(key, []).append(record)
    found = [setup for family in families.values() for setup in _by_physics(family)]
    order = {name: place for place, name in enumerate(PROTOCOLS)}
    last = len(order)
    return sorted(found, key=lambda s: (bool(s.deviations), order.get(str(s.protocol), last), -s.agents, s.title))


def main_setups(found: Sequence[Setup]) -> list[Setup]:
    """The fullest setup of each protocol, of those that keep to it."""
    first: dict[str | None, Setup] = {}
    for setup in found:
        if setup.protocol and not setup.deviations:
            first.setdefault(setup.protocol, setup)
    return list(first.values())


def smoothest(cells: Mapping[float, Cell]) -> float:
    """The weight with the lowest mean sm; cells of mostly constant agents come last."""
    return min(cells, key=lambda weight: (cells[weight].mostly_constant, cells[weight].mean("smoothness")))


def _by_physics(family: Sequence[Record]) -> list[Setup]:
    """Parts in which no simulator occurs in two versions, the most frequent versions first."""
    left, out = list(family), []
    while left:
        counts = Counter(pair for record in left for pair in record.identity["physics"].items())
        main: dict[str, str] = {}
        for (name, version), _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            main.setdefault(name, version)
        fits = [record for record in left if record.identity["physics"].items() <= main.items()]
        left = [record for record in left if not record.identity["physics"].items() <= main.items()]
        if not fits:  # no record has all the most frequent versions: let the first one decide
            main = dict(left[0].identity["physics"])
            fits, left = left[:1], left[1:]
        used = {name: main[name] for record in fits for name in record.identity["physics"]}
        identity = fits[0].identity
        out.append(
            Setup(
                protocol_name(identity["protocol"]),
                fits[0].deviations,
                identity["envs"],
                used,
                identity["numerics"],
                identity["episodes"],
                _cells(fits),
            )
        )
    return out


def _cells(records: Sequence[Record]) -> tuple[Cell, ...]:
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in records:
        identity = record.identity
        own = [identity["method_settings"], identity.get("custom_code")]  # a user's loss before and after an edit
        key = (identity["backbone"], identity["task"], identity["method"], digest(own))
        groups.setdefault(key, []).append(record)
    cells = [
        Cell(b, task, method, own[0].identity["method_settings"], tuple(sorted(own, key=_seed_order)))
        for (b, task, method, _), own in groups.items()
    ]
    return tuple(sorted(cells, key=_cell_order))


def _seed_order(record: Record) -> tuple[int, int]:
    seed = record.identity["seed"]
    return (TRAINING_SEEDS.index(seed) if seed in TRAINING_SEEDS else len(TRAINING_SEEDS), seed)


def _cell_order(cell: Cell) -> tuple[Any, ...]:
    task = PAPER_TASKS.index(cell.task) if cell.task in PAPER_TASKS else len(PAPER_TASKS)
    method = TABLE_METHODS.index(cell.method) if cell.method in TABLE_METHODS else len(TABLE_METHODS)
    numbers = tuple(v for v in cell.settings.values() if isinstance(v, int | float) and not isinstance(v, bool))
    return (cell.backbone != "td3", task, cell.task, method, cell.method, numbers, digest(cell.settings))
