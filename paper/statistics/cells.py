"""Records sorted into setups, and in them cells of agents that differ by seed only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from damper.engine.settings import is_number
from damper.errors import DamperError
from damper.intervals import Array, Change, change_of_mean
from damper.metrics import SMOOTHNESS, is_constant
from damper.protocols import PROTOCOLS, TRAINING_SEEDS
from damper.provenance import digest
from damper.tasks import PAPER_TASKS
from paper.experiments.catalogue import ETAS, TABLE_METHODS, WEIGHTS
from paper.experiments.identity import published_settings
from paper.experiments.printed import title
from paper.experiments.records import CURVE_COLUMNS
from paper.experiments.store import Record
from paper.statistics.estimates import Summary, nan_for_none, summarise

Settings = Mapping[str, Any]
MEASURES = {
    "mean_change": "mean |Δa|",
    "return": "return",
    "sm": "sm",
    "spectral_roughness": "roughness",
    "length": "episode length",
}
SHOWN_CURVE_POINTS = 60
COMPARED = ("mean_change", "return", "sm")  # the measures by which methods are told apart
LETTERS = {"eta": "η", "weight": "λ"}  # of settings


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
    def name(self) -> str:
        """Task, backbone and, unless it is plain, the method."""
        method = "" if self.method == "plain" else f" {title(self.method, self.backbone)}"
        return self.place + method

    @property
    def label(self) -> str:
        """The method, with what differs from its published settings."""
        shown = {n: v for n, v in self.settings.items() if self._published_settings.get(n) != v}
        if self.method == "scalarization":
            shown |= {"weight": self.settings["weight"]}
        changed = [f"{LETTERS.get(n, n)}={v}" for n, v in self.settings.items() if n in shown]
        return " ".join([title(self.method, self.backbone), *changed])

    @property
    def published(self) -> bool:
        """Whether the settings are the method's published ones for the task."""
        return self.settings == self._published_settings

    @property
    def _published_settings(self) -> Settings:
        """Unlike any other for a method that this installation does not have."""
        try:
            return published_settings(self.method, self.task, self.backbone)
        except DamperError:
            return {"unknown": None}

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
        held = []
        for record in self.records:
            changes, lengths = record.episodes["mean_change"], record.episodes["length"]
            if is_constant(nan_for_none(changes), lengths):
                held.append(record.identity["seed"])
        return held

    @property
    def mostly_constant(self) -> bool:
        """Whether most agents hold one action throughout: then smoothness is no result."""
        return 2 * len(self.constant) > len(self.records)

    @property
    def constant_note(self) -> str:
        """How many agents hold one action throughout, in words; empty where none does."""
        held = len(self.constant)
        return f"constant action, {held} of {len(self.records)}" if held else ""

    def scores(self, measure: str) -> Array:
        """A measure of every episode, ``[S, E]``; seeds with an unknown value are left out."""
        table = np.array([nan_for_none(record.episodes[measure]) for record in self.records])
        return np.asarray(table[np.isfinite(table).all(axis=1)])

    def known(self, measure: str) -> Cell:
        """The cell with the seeds that have the value."""
        values = {r.identity["seed"]: nan_for_none(r.episodes[measure]) for r in self.records}
        return self.only([seed for seed, scores in values.items() if np.isfinite(scores).all()])

    def only(self, seeds: Collection[int]) -> Cell:
        """The cell with some of its seeds."""
        records = (record for record in self.records if record.identity["seed"] in seeds)
        return replace(self, records=tuple(records))

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
        """Some steps of the longest curve; per column mean and range of the seeds then known."""
        longest = max((record.curve["step"] for record in self.records), key=len)
        count = min(SHOWN_CURVE_POINTS, len(longest))
        steps = [longest[i] for i in np.unique(np.linspace(0, len(longest) - 1, count).astype(int))]
        curves = {}
        for name in CURVE_COLUMNS if steps else ():
            recorded = [record.curve for record in self.records if name in record.curve]
            if recorded:
                seeds = [_interpolated(steps, curve, name) for curve in recorded]
                table = np.ma.masked_invalid(seeds)
                bounds = np.ma.stack([table.mean(0), table.min(0), table.max(0)])
                curves[name] = bounds.filled(np.nan)
        return steps, curves


@dataclass(frozen=True, eq=False)
class Setup:
    """Cells made under the same conditions, in the order of the paper's tables.

    ``deviations`` are what training did differently from ``protocol``, and ``backend`` stepped the
    environments with ``physics``, the versions of its simulators.
    """

    protocol: str | None
    deviations: Settings
    backend: str
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
        numerics = ", tf32" if self.numerics.get("tf32") else ""
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
        training = [self.protocol, self.deviations, self.backend, self.physics]
        return digest([*training, self.numerics, self.episodes])[:8]

    def find(self, backbone: str, task: str, method: str, **changed: float) -> Cell | None:
        """The cell at a method's published settings, or with some changed; None if several are."""
        settings = {**published_settings(method, task, backbone), **changed}
        return self._index.get((backbone, task, method, digest(settings)))

    def sweep(self, task: str) -> dict[float, Cell]:
        """TD3's cells of the fixed weights that are on record, by weight."""
        cells = {w: self.find("td3", task, "scalarization", weight=w) for w in WEIGHTS}
        return {weight: cell for weight, cell in cells.items() if cell is not None}

    def etas(self, task: str, backbone: str = "td3") -> dict[float, Cell]:
        """DAMPER's cells of the sweep over η that are on record, by η."""
        cells = {eta: self.find(backbone, task, "damper", eta=eta) for eta in ETAS}
        return {eta: cell for eta, cell in cells.items() if cell is not None}

    @cached_property
    def published(self) -> list[Cell]:
        """The cells that ``find`` has at their methods' published settings."""
        cells = (cell for cell in self.cells if cell.published)
        return [c for c in cells if c is self.find(c.backbone, c.task, c.method)]

    @cached_property
    def _index(self) -> dict[tuple[str, str, str, str], Cell]:
        """Without the cells that differ by a user's code alone: none is meant more than another."""
        keys = [(c.backbone, c.task, c.method, digest(c.settings)) for c in self.cells]
        counts = Counter(keys)
        return {key: cell for key, cell in zip(keys, self.cells, strict=True) if counts[key] == 1}

    def tasks(self, backbone: str) -> list[str]:
        """Tasks that have a cell, the paper's first."""
        return list(dict.fromkeys(cell.task for cell in self.cells if cell.backbone == backbone))


def _interpolated(steps: Sequence[int], curve: Mapping[str, list[Any]], name: str) -> Array:
    """A seed's values at other steps, between its own ones; NaN outside them."""
    known_steps, values = np.array(curve["step"], dtype=np.float64), nan_for_none(curve[name])
    sound = np.isfinite(values)
    if not sound.any():
        return np.full(len(steps), np.nan)
    inside = np.interp(steps, known_steps[sound], values[sound], left=np.nan, right=np.nan)
    return np.asarray(inside)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "×".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def setups(records: Iterable[Record]) -> list[Setup]:
    """All setups, those that keep to a protocol first, in the order of ``PROTOCOLS``."""
    families: dict[str, list[Record]] = {}
    for record in records:
        alike = [record.identity[n] for n in ("protocol", "backend", "numerics", "episodes")]
        families.setdefault(digest([record.deviations, *alike]), []).append(record)
    order = {name: place for place, name in enumerate(PROTOCOLS)}

    def rank(setup: Setup) -> tuple[Any, ...]:
        place = order.get(str(setup.protocol), len(order))
        return bool(setup.deviations), place, -setup.agents, setup.title

    return sorted((s for family in families.values() for s in _by_physics(family)), key=rank)


def main_setups(setups: Sequence[Setup]) -> list[Setup]:
    """The fullest setup of each protocol, of those that keep to it."""
    first: dict[str | None, Setup] = {}
    for setup in setups:
        if setup.protocol and not setup.deviations:
            first.setdefault(setup.protocol, setup)
    return list(first.values())


def smoothest(cells: Mapping[float, Cell]) -> float:
    """The weight with the lowest mean sm; cells of mostly constant agents come last."""
    return min(cells, key=lambda weight: (cells[weight].mostly_constant, cells[weight].mean("sm")))


def change(plain: Cell, ours: Cell, measure: str) -> Change:
    """The change from plain; no smoothness counts where most agents of a side hold one action."""
    if measure in SMOOTHNESS and (plain.mostly_constant or ours.mostly_constant):
        return Change(np.nan, None, "; ".join(constant_notes(plain, ours)))
    return change_of_mean(plain.means(measure), ours.means(measure), measure)


def constant_notes(plain: Cell, ours: Cell) -> list[str]:
    """How many agents of either side hold one action."""
    notes = {"": ours.constant_note, "plain: ": plain.constant_note}
    return [side + note for side, note in notes.items() if note]


def _by_physics(family: Sequence[Record]) -> list[Setup]:
    """Parts in which no simulator occurs in two versions, the most frequent versions first."""
    groups: dict[tuple[tuple[str, str], ...], list[Record]] = {}
    for record in family:
        groups.setdefault(tuple(sorted(record.identity["physics"].items())), []).append(record)
    parts: list[tuple[dict[str, str], list[Record]]] = []
    for versions, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        for used, records in parts:
            if all(used.get(name, version) == version for name, version in versions):
                used.update(versions)
                records += members
                break
        else:
            parts.append((dict(versions), members))
    return [_setup(used, records) for used, records in parts]


def _setup(physics: Mapping[str, str], records: Sequence[Record]) -> Setup:
    first = records[0].identity
    how = (first["protocol"], records[0].deviations, first["backend"], physics)
    return Setup(*how, first["numerics"], first["episodes"], _cells(records))


def _cells(records: Sequence[Record]) -> tuple[Cell, ...]:
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in records:
        identity = record.identity
        # A user's loss before an edit is not the one after it.
        kind = digest([identity["method_settings"], identity.get("custom_code")])
        key = (identity["backbone"], identity["task"], identity["method"], kind)
        groups.setdefault(key, []).append(record)
    cells = []
    for (backbone, task, method, _), members in groups.items():
        settings = members[0].identity["method_settings"]
        seeds = tuple(sorted(members, key=lambda r: _rank(r.identity["seed"], TRAINING_SEEDS)))
        cells.append(Cell(backbone, task, method, settings, seeds))
    return tuple(sorted(cells, key=_cell_order))


def _rank(item: Any, order: Sequence[Any]) -> tuple[int, Any]:
    """The items of an order in that order, then all others."""
    return (order.index(item) if item in order else len(order), item)


def _cell_order(cell: Cell) -> tuple[Any, ...]:
    names = _rank(cell.task, PAPER_TASKS) + _rank(cell.method, TABLE_METHODS)
    numbers = tuple(value for value in cell.settings.values() if is_number(value))
    return (cell.backbone != "td3", *names, numbers, digest(cell.settings))
