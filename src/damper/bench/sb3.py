"""What smoothness costs an SB3 user: our update beside Stable-Baselines3's own, on one machine, turn by turn."""

from __future__ import annotations

import copy
import statistics
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
from stable_baselines3.common.logger import configure

import damper.sb3
from damper.bench.turns import CLOCKS, wait
from damper.errors import DamperError


@dataclass(frozen=True)
class Overhead:
    """Medians over the rounds; ``ratio`` is the median of the rounds' own ratios, which a busy machine moves least."""

    backbone: str
    method: str
    plain_ms: float
    ours_ms: float
    ratio: float

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.backbone.upper()} {self.method}: {self.ours_ms:.2f} ms per update, "
            f"Stable-Baselines3 {self.plain_ms:.2f} ms, ratio {self.ratio:.2f}"
        )


class _Spaces(gymnasium.Env[Any, Any]):
    """Observations and actions of Hopper's sizes; only the update is timed, so nothing moves."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (11,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(11, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(11, np.float32), 0.0, False, False, {}


def measure_overhead(
    backbone: str = "td3",
    method: str = "damper",
    rounds: int = 30,
    updates: int = 20,
    batch_size: int = 256,
    show: bool = True,
    clock: str = "wall",
    **settings: Any,
) -> Overhead:
    """Time both classes' ``train`` on the same data with SB3's default networks, in alternation.

    Args:
        backbone: "td3" or "sac".
        method: which method of ours.
        rounds: how often the two take turns; which goes first alternates too.
        updates: gradient steps per turn.
        batch_size: transitions per gradient step.
        show: print the line.
        clock: "wall", or "processor" for this process's time on the CPU, which others hardly move.
        **settings: further arguments of both classes, e.g. ``policy_kwargs``.
    """
    if backbone not in ("td3", "sac"):
        raise DamperError(f"backbone must be 'td3' or 'sac', but {backbone!r} was given.")
    name = backbone.upper()
    models = [
        _model(getattr(stable_baselines3, name), settings),
        _model(getattr(damper.sb3, name), {**settings, "method": method}),
    ]
    for model in models:
        model.train(gradient_steps=updates, batch_size=batch_size)
    times: list[list[float]] = [[], []]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            times[which].append(_seconds(models[which], updates, batch_size, clock))
    ratio = statistics.median(ours / plain for plain, ours in zip(*times, strict=True))
    plain, ours = (1e3 * statistics.median(series) / updates for series in times)
    overhead = Overhead(backbone, method, plain, ours, ratio)
    if show:
        print(overhead)
    return overhead


def _model(kind: Any, settings: dict[str, Any], rows: int = 5000) -> Any:
    """A model with a replay buffer full of random transitions."""
    # SB3 writes into policy_kwargs, so each model gets its own.
    own = copy.deepcopy({"device": "cpu", **settings})
    model = kind("MlpPolicy", _Spaces(), seed=0, buffer_size=rows, **own)
    model.set_logger(configure(None, []))
    buffer, generator = model.replay_buffer, np.random.default_rng(0)
    for array in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards):
        array[:] = generator.uniform(-1.0, 1.0, array.shape)
    buffer.full = True
    return model


def _seconds(model: Any, updates: int, batch_size: int, clock: str) -> float:
    wait(str(model.device))
    start = CLOCKS[clock]()
    model.train(gradient_steps=updates, batch_size=batch_size)
    wait(str(model.device))
    return CLOCKS[clock]() - start
