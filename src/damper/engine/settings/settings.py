"""The settings of a run: what all agents share, and what differs between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from damper.engine.custom_code import identify, registered_env
from damper.methods import find_method
from damper.schedules import Schedule, as_schedule, value_at
from damper.settings import PER_AGENT, SCHEDULABLE, SETTINGS, TrainingSettings


@dataclass(frozen=True)
class Settings(TrainingSettings):
    """All settings of a run, as ``damper.settings`` declares them, and what follows from them.

    Tuples for those that may differ between agents and for the method's own make a population of
    their product. For agents that are not such a product, ``table`` has one row per agent: its seed
    and its value of every setting that differs, including "method" where methods share their losses
    (``methods.merge_methods``).
    """

    def __post_init__(self) -> None:
        """Turn functions and texts that describe schedules into schedules."""
        for name in SCHEDULABLE:  # frozen instances are set as dataclasses do it themselves
            object.__setattr__(self, name, as_schedule(name, getattr(self, name)))
        object.__setattr__(self, "method_settings", _with_schedules(self.method_settings))
        object.__setattr__(self, "table", tuple(map(_with_schedules, self.table)))

    @property
    def unused_settings(self) -> list[str]:
        """Settings that differ from their defaults but are read only by the other backbone."""
        return [
            name
            for name, declared in SETTINGS.items()
            if declared.backbone not in (None, self.backbone)
            and getattr(self, name) != declared.default
        ]

    @property
    def env_id(self) -> str:
        """The environment's id, or the name of the callable that makes it."""
        if isinstance(self.env, str):
            return self.env
        return getattr(self.env, "__name__", type(self.env).__name__)

    @property
    def env_in_paths(self) -> str:
        """The environment's id as a part of a folder's name; scp reads a colon as a host's end."""
        return self.env_id.replace("/", "_").replace(":", "_")

    def agents(self) -> list[dict[str, Any]]:
        """One row per agent: its seed, and its value of every setting in which agents differ."""
        if self.table:
            return [dict(row) for row in self.table]
        values = {name: getattr(self, name) for name in PER_AGENT}
        values |= self.method_settings
        varying = {name: value for name, value in values.items() if isinstance(value, tuple)}
        combinations = itertools.product(*varying.values())
        rows = [dict(zip(varying, values, strict=True)) for values in combinations]
        return [{**row, "seed": seed} for row in rows for seed in self.seeds]

    def per_agent_hparams(self) -> dict[str, torch.Tensor]:
        """The backbone's numbers as ``[P]`` tensors, schedules at their first value.

        Those that are off (None) are left out, so that they cost nothing.
        """
        agents = self.agents()
        numbers = {name: value for name in PER_AGENT if (value := getattr(self, name)) is not None}
        if numbers["ent_coef"] == "auto":
            numbers["ent_coef"] = 1.0  # where learning it starts, as in SB3
        hparams = {}
        for name, value in numbers.items():
            column = [float(value_at(agent.get(name, value))) for agent in agents]
            hparams[name] = torch.tensor(column, dtype=torch.float64)
        return hparams

    def scheduled(self) -> dict[str, list[Any]]:
        """One value per agent of every setting for which at least one agent has a schedule."""
        agents = self.agents()
        shared = {name: getattr(self, name) for name in SCHEDULABLE}
        shared |= find_method(self.method).settings(self.method_settings)
        columns = {}
        for name, value in shared.items():
            column = [agent.get(name, value) for agent in agents]
            if any(isinstance(value, Schedule) for value in column):
                columns[name] = column
        return columns

    def method_kwargs(
        self,
        device: torch.device,
        dtype: torch.dtype,
        scheduled: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """The method's settings by part; ``[P]`` tensors where agents differ or follow a schedule.

        ``scheduled`` has the tensors of settings that follow a schedule; by default they are made
        with the first value.
        """
        agents, method = self.agents(), find_method(self.method)
        values, defaults = dict(self.method_settings), method.settings()
        for name in {name for row in (*agents, self.scheduled()) for name in row} & set(defaults):
            shared = values.get(name, defaults[name])
            column = [value_at(agent.get(name, shared)) for agent in agents]
            values[name] = torch.tensor(column, device=device, dtype=dtype)
        values |= {name: tensor for name, tensor in (scheduled or {}).items() if name in defaults}
        # Which rule each agent has, where methods with other rules share a population.
        if "choice" in defaults:
            names = self.method.split(",")
            choices = [names.index(agent["method"]) for agent in agents]
            values["choice"] = torch.tensor(choices, device=device)
        return method.route(values)

    @property
    def custom_functions(self) -> dict[str, Callable[..., Any]]:
        """The user's functions that the settings name, by part: environment, losses and rule."""
        method = find_method(self.method)
        env = registered_env(self.env) if isinstance(self.env, str) else self.env
        functions = {} if env is None else {"env": env}
        return functions if method.is_shipped else functions | method.functions

    def custom_code(self) -> dict[str, str]:
        """Module, name and digest of each of ``custom_functions``, for the manifest."""
        return {part: identify(function) for part, function in self.custom_functions.items()}

    def record(self) -> dict[str, Any]:
        """The settings as plain data for the manifest, including the method's defaults."""
        record = {name: getattr(self, name) for name in SETTINGS}
        method_settings = find_method(self.method).settings(self.method_settings)
        table = [dict(row) for row in self.table]
        return {**record, "env": self.env_id, "method_settings": method_settings, "table": table}


def _with_schedules(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_schedule(name, value) for name, value in values.items()}
