"""The settings of a run: what all agents share, and what differs between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from damper.engine.custom_code import identify, registered_env
from damper.methods import find_method
from damper.schedules import Schedule, as_schedule, value_at

PER_AGENT = (
    "learning_rate",
    "gamma",
    "tau",
    "target_policy_noise",
    "target_noise_clip",
    "action_noise",
    "ent_coef",
)
BACKBONE_ONLY = {  # settings that the other backbone does not read
    "td3": ("policy_delay", "target_policy_noise", "target_noise_clip", "action_noise"),
    "sac": ("ent_coef",),
}
# How a run is computed, not what: with `device`, `compile` and `graph` results agree up to
# rounding, else bit for bit. A resumed run may change them, and an agent's identity leaves them
# out.
EXECUTION = (
    "device",
    "env_threads",
    "compile",
    "graph",
    "log_every",
    "checkpoint_every",
    "keep_checkpoint",
)


@dataclass(frozen=True)
class Settings:
    """All settings of a run; tuples for those in ``PER_AGENT`` and the method's own make a population of their product.

    ``learning_rate`` and the method's numbers may follow the run's progress (``damper.schedules``).

    For agents that are not such a product, ``table`` has one row per agent: its seed and its value
    of every setting that differs, including "method" where methods share their losses
    (``methods.merge_methods``).

    Names are Stable-Baselines3's where it has one. ``env_kwargs`` are the environment's own
    arguments. Every ``eval_every`` steps (0: never) each agent's policy is evaluated on
    ``eval_episodes`` episodes, and its best one is kept. With ``norm_obs`` each agent's networks
    see observations normalised by their running statistics.
    """

    env: str | Callable[[], Any]
    backbone: str
    method: str
    seeds: tuple[int, ...]
    steps: int
    protocol: str | None = None
    learning_rate: float | Schedule | tuple[float | Schedule, ...] = 3e-4
    buffer_size: int = 1_000_000
    learning_starts: int = 100
    batch_size: int = 256
    tau: float | tuple[float, ...] = 0.005
    gamma: float | tuple[float, ...] = 0.99
    train_freq: int = 1
    gradient_steps: int = 1
    policy_delay: int = 2
    target_policy_noise: float | tuple[float, ...] = 0.2
    target_noise_clip: float | tuple[float, ...] = 0.5
    action_noise: float | tuple[float, ...] = 0.1
    ent_coef: float | str | tuple[float, ...] = "auto"
    net_arch: tuple[int, ...] = (256, 256)
    activation: str = "silu"
    method_settings: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    backend: str = "gymnasium"
    env_threads: int | None = None
    dtype: str = "float32"
    compile: bool = False
    graph: bool | None = None
    tf32: bool = False
    log_every: int = 1000
    checkpoint_every: int = 20_000
    # Settings added after the first version start here; append new ones at the end (see
    # ``train.default_name``).
    keep_checkpoint: bool = False
    table: tuple[Mapping[str, Any], ...] = ()
    env_kwargs: Mapping[str, Any] | None = None
    eval_every: int = 0
    eval_episodes: int = 5
    norm_obs: bool = False

    def __post_init__(self) -> None:
        """Turn functions and texts that describe schedules into schedules."""
        object.__setattr__(self, "learning_rate", as_schedule("learning_rate", self.learning_rate))
        object.__setattr__(self, "method_settings", _with_schedules(self.method_settings))
        object.__setattr__(self, "table", tuple(map(_with_schedules, self.table)))

    @property
    def unused_settings(self) -> list[str]:
        """Settings that differ from their defaults but are read only by the other backbone."""
        others = (
            name
            for backbone, names in BACKBONE_ONLY.items()
            if backbone != self.backbone
            for name in names
        )
        return [name for name in others if getattr(self, name) != getattr(Settings, name)]

    @property
    def env_id(self) -> str:
        """The environment's id, or the name of the callable that makes it."""
        return (
            self.env
            if isinstance(self.env, str)
            else getattr(self.env, "__name__", type(self.env).__name__)
        )

    def agents(self) -> list[dict[str, Any]]:
        """One row per agent: its seed, and its value of every setting that differs between agents."""
        if self.table:
            return [dict(row) for row in self.table]
        varying = {
            name: getattr(self, name)
            for name in PER_AGENT
            if isinstance(getattr(self, name), tuple)
        }
        varying |= {
            name: value for name, value in self.method_settings.items() if isinstance(value, tuple)
        }
        combinations = itertools.product(*varying.values())
        return [
            {**dict(zip(varying, values, strict=True)), "seed": seed}
            for values in combinations
            for seed in self.seeds
        ]

    def per_agent_hparams(self) -> dict[str, torch.Tensor]:
        """The backbone's numbers (``PER_AGENT``) as ``[P]`` tensors, schedules at their first value."""
        agents = self.agents()
        numbers = {name: getattr(self, name) for name in PER_AGENT}
        if numbers["ent_coef"] == "auto":
            numbers["ent_coef"] = 1.0
        rows = {
            name: [float(value_at(agent.get(name, value))) for agent in agents]
            for name, value in numbers.items()
        }
        return {name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()}

    def scheduled(self) -> dict[str, list[Any]]:
        """One value per agent of every setting for which at least one agent has a schedule."""
        agents, method_settings = (
            self.agents(),
            find_method(self.method).settings(self.method_settings),
        )
        shared = {"learning_rate": self.learning_rate, **method_settings}
        columns = {
            name: [agent.get(name, value) for agent in agents] for name, value in shared.items()
        }
        return {
            name: column
            for name, column in columns.items()
            if any(isinstance(one, Schedule) for one in column)
        }

    def method_kwargs(
        self,
        device: torch.device,
        dtype: torch.dtype,
        scheduled: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """The method's settings by part; those that differ between agents or follow a schedule as ``[P]`` tensors.

        ``scheduled`` has the tensors of settings that follow a schedule; by default they are made
        with the first value.
        """
        agents, method = self.agents(), find_method(self.method)
        values, defaults = dict(self.method_settings), method.settings()
        for name in {name for row in (*agents, self.scheduled()) for name in row} & set(defaults):
            column = [
                value_at(agent.get(name, values.get(name, defaults[name]))) for agent in agents
            ]
            values[name] = torch.tensor(column, device=device, dtype=dtype)
        values |= {name: tensor for name, tensor in (scheduled or {}).items() if name in defaults}
        if "choice" in defaults:
            names = self.method.split(",")
            values["choice"] = torch.tensor(
                [names.index(agent["method"]) for agent in agents], device=device
            )
        return method.route(values)

    @property
    def custom_functions(self) -> dict[str, Callable[..., Any]]:
        """The user's functions that the settings name, by part: environment, losses and rule."""
        method = find_method(self.method)
        env = registered_env(self.env) if isinstance(self.env, str) else self.env
        own = {} if env is None else {"env": env}
        return own if method.is_shipped else own | method.functions

    def custom_code(self) -> dict[str, str]:
        """Module, name and digest of each of ``custom_functions``, for the manifest."""
        return {part: identify(function) for part, function in self.custom_functions.items()}

    def record(self) -> dict[str, Any]:
        """The settings as plain data for the manifest, including the method's defaults."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        method_settings = find_method(self.method).settings(self.method_settings)
        table = [dict(row) for row in self.table]
        return {**record, "env": self.env_id, "method_settings": method_settings, "table": table}


def is_number(value: Any) -> bool:
    """Whether a value may differ between agents: a number, but not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_schedules(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_schedule(name, value) for name, value in values.items()}
