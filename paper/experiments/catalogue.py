"""The paper's experiments as data: which agents each table and figure needs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from damper.engine.envs.gymnasium_pool import import_module_of
from damper.engine.settings import PER_AGENT, Settings, pick_seeds, resolve
from damper.errors import DamperError, did_you_mean
from damper.policies.episodes import evaluation_seeds
from damper.provenance import digest, versions
from damper.tasks import PAPER_TASKS, find_task, task_name
from paper.experiments.identity import identity, physics

Variants = Mapping[str, Mapping[str, tuple[float, ...]]]

TABLE_METHODS = ("plain", "caps", "grad-caps", "asap", "l2c2", "pave", "damper")
RIVALS = tuple(method for method in TABLE_METHODS if method not in ("plain", "damper"))
BACKBONES = ("td3", "sac")
ABLATION_TASKS = ("LunarLander", "Hopper", "Walker")
WEIGHTS = tuple(round(0.05 * k, 2) for k in range(1, 21))
ETAS = tuple(round(0.2 * k, 1) for k in range(6))
ONE_ETA = 1.0  # one setting for all tasks, where the paper chooses η per task and backbone


def _at_published_settings(*methods: str) -> Variants:
    """Methods at their published settings."""
    return {method: {} for method in methods}


@dataclass(frozen=True)
class Experiment:
    """One table or figure: every variant on every task and backbone, with ``seeds`` seeds each.

    ``variants`` maps a method to the settings that are swept; an empty sweep means the published
    settings. ``trained`` is False for an experiment that ``python -m paper bench`` measures.
    """

    title: str
    backbones: tuple[str, ...]
    tasks: tuple[str, ...]
    variants: Variants
    seeds: int = 5
    trained: bool = True


_EVERY_METHOD = _at_published_settings(*TABLE_METHODS)
_PROJECTIONS = _at_published_settings("damper", "unconditional-projection", "unconditional-sum")
_PEGRAD = _at_published_settings("damper", "pegrad")
_PAIR = _at_published_settings("plain", "damper")

EXPERIMENTS: dict[str, Experiment] = {
    "td3-table": Experiment("TD3 results, seven methods", ("td3",), PAPER_TASKS, _EVERY_METHOD),
    "sac-table": Experiment("SAC results, seven methods", ("sac",), PAPER_TASKS, _EVERY_METHOD),
    "projection-ablation": Experiment(
        "projection always, never or on conflict", ("td3",), ABLATION_TASKS, _PROJECTIONS
    ),
    "pegrad": Experiment("the PEGrad-based baseline", ("td3",), ABLATION_TASKS, _PEGRAD),
    "scalarization-sweep": Experiment(
        "fixed weights 0.05 to 1 against DAMPER",
        ("td3",),
        PAPER_TASKS,
        {"scalarization": {"weight": WEIGHTS}, "damper": {}},
    ),
    "eta-sweep": Experiment("η from 0 to 1", ("td3",), ABLATION_TASKS, {"damper": {"eta": ETAS}}),
    "one-eta": Experiment(
        "DAMPER with η = 1 everywhere: one setting for all tasks",
        BACKBONES,
        PAPER_TASKS,
        {"damper": {"eta": (ONE_ETA,)}},
    ),
    "walker-variation": Experiment(
        "action changes along a Walker episode", BACKBONES, ("Walker",), _PAIR, seeds=1
    ),
    "update-time": Experiment(
        "time of one update", BACKBONES, ("Hopper",), _EVERY_METHOD, seeds=1, trained=False
    ),
}


def find_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS, f"choose one of {', '.join(EXPERIMENTS)}.")
        raise DamperError(f"experiment must be one of the paper's, but {name!r} was given: {hint}")
    return EXPERIMENTS[name]


@dataclass(frozen=True)
class Request:
    """Which experiments to reproduce, which part of them, and with which settings.

    Empty ``tasks``, ``methods`` and ``backbones`` mean those of the experiment, and ``seeds=None``
    its number of seeds. ``settings`` override the protocol's; such records are marked and kept out
    of the protocol's tables. ``trained_here`` is False to list agents, or to train them on other
    machines: this one may lack their device.
    """

    experiments: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    seeds: int | tuple[int, ...] | None = None
    protocol: str = "pave"
    steps: int | None = None
    episodes: int = 10
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    trained_here: bool = True


@dataclass(frozen=True, eq=False)
class AgentSpec:
    """One agent of a cell: settings, identity with its digest, rank among the cell's seeds."""

    settings: Settings
    identity: Mapping[str, Any]
    digest: str
    rank: int


def expand_request(request: Request) -> list[AgentSpec]:
    """All agents of a request without duplicates, in the order of the experiments."""
    evaluation_seeds(request.episodes)  # raises before anything is trained
    for task in request.tasks:
        import_module_of(task)  # it may register methods
    agents: dict[str, AgentSpec] = {}
    installed = versions()
    for name in request.experiments:
        experiment = find_experiment(name)
        backbones = request.backbones or experiment.backbones
        tasks, methods = request.tasks or experiment.tasks, request.methods or experiment.variants
        for cell in itertools.product(backbones, tasks, methods):
            for agent in _cell_agents(request, experiment, *cell, installed):
                agents.setdefault(agent.digest, agent)
    return list(agents.values())


def _cell_agents(
    request: Request,
    experiment: Experiment,
    backbone: str,
    task: str,
    method: str,
    installed_versions: Mapping[str, str],
) -> list[AgentSpec]:
    """The agents of one backbone, task and method."""
    env = task_name(task) or task
    count_or_list = experiment.seeds if request.seeds is None else request.seeds
    seeds = pick_seeds(count_or_list, request.protocol)
    steps = find_task(env).steps if request.steps is None else request.steps
    sweep = experiment.variants.get(method, {})
    given = {"trained_here": request.trained_here, **request.settings, **sweep}
    population = resolve(env, backbone, method, seeds, steps, request.protocol, **given)
    lists = [name for name in PER_AGENT if isinstance(getattr(population, name), tuple)]
    if lists:
        raise DamperError(
            f"{lists[0]} must be one value to reproduce an experiment, but several were given."
        )
    installed, code = physics(env, population.backend, installed_versions), population.custom_code()
    agents = []
    for row in population.agents():
        seed = row["seed"]
        swept = {name: value for name, value in row.items() if name != "seed"}
        method_settings = {**population.method_settings, **swept}
        settings = replace(population, seeds=(seed,), method_settings=method_settings)
        facts = identity(settings.record(), row, installed, request.episodes, code)
        agents.append(AgentSpec(settings, facts, digest(facts), seeds.index(seed)))
    return agents
