"""Tasks with a short name: ids in Gymnasium and EnvPool, training budgets, control periods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """A task: ids, budget in steps, control period in seconds, and ``gymnasium.make``'s kwargs."""

    gymnasium_id: str
    envpool_id: str
    steps: int | None = None
    period: float | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)


# Exactly the paper's columns, in their order: presets, tables and claims have a value for each.
PAPER_TASKS = ("LunarLander", "Pendulum", "Reacher", "Ant", "Hopper", "Walker")
# All tasks with a short name; for one outside the paper a line in this table is enough.
TASKS: dict[str, Task] = {
    "LunarLander": Task(
        "LunarLander-v3", "LunarLanderContinuous-v3", 500_000, 0.02, {"continuous": True}
    ),
    "Pendulum": Task("Pendulum-v1", "Pendulum-v1", 100_000, 0.05),
    "Reacher": Task("Reacher-v5", "Reacher-v5", 500_000, 0.02),
    "Ant": Task("Ant-v5", "Ant-v5", 1_000_000, 0.05),
    "Hopper": Task("Hopper-v5", "Hopper-v5", 1_000_000, 0.008),
    "Walker": Task("Walker2d-v5", "Walker2d-v5", 1_000_000, 0.008),
}


def find_task(env: str) -> Task:
    """The task of this name or id; an id that is not in the table is that of both backends."""
    name = task_name(env)
    return Task(env, env) if name is None else TASKS[name]


def task_name(env: str) -> str | None:
    """The short name of a task from its name or an id; None if it has none."""
    for name, task in TASKS.items():
        if env in (name, task.gymnasium_id, task.envpool_id):
            return name
    return None


def recorded_name(env: str) -> str:
    """What records call an environment: the paper's tasks by short name, others by their id."""
    name = task_name(env)
    return name if name in PAPER_TASKS else find_task(env).gymnasium_id
