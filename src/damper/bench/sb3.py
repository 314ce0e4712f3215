"""What smoothness costs an SB3 user: our update beside Stable-Baselines3's own, on one machine, turn by turn."""

from __future__ import annotations

import copy
import importlib
import inspect
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.logger import configure

import damper.sb3
from damper.bench.interleaved_timing import CLOCKS, wait
from damper.errors import DamperError

BACKBONES = ("td3", "sac", "ddpg", "tqc", "ppo")


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
    batch_size: int | None = None,
    show: bool = True,
    clock: str = "wall",
    **settings: Any,
) -> Overhead:
    """Time both classes' ``train`` on the same data with SB3's default networks, in alternation.

    Args:
        backbone: "td3", "sac", "ddpg", "tqc" or "ppo".
        method: which method of ours.
        rounds: how often the two take turns; which goes first alternates too.
        updates: gradient steps per turn; of PPO, minibatches of one epoch.
        batch_size: transitions per gradient step; SB3's default if None.
        show: print the line.
        clock: "wall", or "processor" for this process's time on the CPU, which others hardly move.
        **settings: further arguments of both classes, e.g. ``policy_kwargs``.
    """
    if backbone not in BACKBONES:
        raise DamperError(f"backbone must be one of {', '.join(BACKBONES)}, but {backbone!r} was given.")
    name, make = backbone.upper(), _on_policy if backbone == "ppo" else _off_policy
    ours = getattr(damper.sb3, name)  # first: it says what to install
    theirs = getattr(importlib.import_module("sb3_contrib" if backbone == "tqc" else "stable_baselines3"), name)
    if batch_size is None:
        batch_size = inspect.signature(theirs).parameters["batch_size"].default
    models = [
        make(kind, updates, batch_size, own)
        for kind, own in ((theirs, settings), (ours, {**settings, "method": method}))
    ]
    for _, train in models:
        train()
    times: list[list[float]] = [[], []]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            times[which].append(_seconds(*models[which], clock))
    ratio = statistics.median(ours / plain for plain, ours in zip(*times, strict=True))
    plain_ms, ours_ms = (1e3 * statistics.median(series) / updates for series in times)
    overhead = Overhead(backbone, method, plain_ms, ours_ms, ratio)
    if show:
        print(overhead)
    return overhead


Trained = tuple[Any, Callable[[], None]]  # a model, and so many of its updates


def _model(kind: Any, settings: dict[str, Any]) -> Any:
    # SB3 writes into policy_kwargs, so each model gets its own.
    own = copy.deepcopy({"device": "cpu", **settings})
    model = kind("MlpPolicy", _Spaces(), seed=0, **own)
    model.set_logger(configure(None, []))
    return model


def _off_policy(kind: Any, updates: int, batch_size: int, settings: dict[str, Any], rows: int = 5000) -> Trained:
    """A model with a replay buffer full of random transitions."""
    model = _model(kind, {"buffer_size": rows, **settings})
    buffer, generator = model.replay_buffer, np.random.default_rng(0)
    for array in (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards):
        array[:] = generator.uniform(-1.0, 1.0, array.shape)
    buffer.full = True
    return model, lambda: model.train(gradient_steps=updates, batch_size=batch_size)


def _on_policy(kind: Any, updates: int, batch_size: int, settings: dict[str, Any], length: int = 200) -> Trained:
    """A model with a rollout of random observations, in episodes of ``length`` steps, one epoch long."""
    model = _model(kind, {"n_steps": updates * batch_size, "n_epochs": 1, "batch_size": batch_size, **settings})
    buffer, generator = model.rollout_buffer, np.random.default_rng(0)
    for array in (buffer.observations, buffer.advantages, buffer.returns):
        array[:] = generator.uniform(-1.0, 1.0, array.shape)
    with torch.no_grad():
        actions, values, log_prob = model.policy(torch.as_tensor(buffer.observations[:, 0], device=model.device))
    for array, found in ((buffer.actions, actions), (buffer.values, values), (buffer.log_probs, log_prob)):
        array[:] = found.cpu().numpy().reshape(array.shape)
    buffer.episode_starts[::length] = 1.0
    buffer.full = True
    return model, model.train


def _seconds(model: Any, train: Callable[[], None], clock: str) -> float:
    wait(str(model.device))
    start = CLOCKS[clock]()
    train()
    wait(str(model.device))
    return CLOCKS[clock]() - start
