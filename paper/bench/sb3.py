"""What smoothness costs an SB3 user: our update and SB3's own, timed alternately."""

from __future__ import annotations

import copy
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import damper.sb3
from damper.errors import DamperError
from paper.bench.interleaved_timing import Plan, Workload, time_interleaved
from paper.bench.peers import Spaces, silent, whole_train

BACKBONES = ("td3", "sac", "ddpg", "tqc", "ppo")


@dataclass(frozen=True)
class Overhead:
    """Medians over the rounds; ``ratio`` is that of the rounds' ratios."""

    plain_ms: float
    ours_ms: float
    ratio: float


def measure_overhead(
    backbone: str = "td3",
    method: str = "damper",
    rounds: int = 30,
    updates: int = 20,
    batch_size: int | None = None,
    clock: str = "wall",
    device: str = "cpu",
    **settings: Any,
) -> Overhead:
    """Time both classes' ``train`` alternately, on the same data and with SB3's default networks.

    Args:
        backbone: "td3", "sac", "ddpg", "tqc" or "ppo".
        method: the method of our class.
        rounds: how often each class is timed; which goes first alternates.
        updates: gradient steps per class and round, made even; for PPO, minibatches of an epoch.
        batch_size: transitions per gradient step; SB3's default if None.
        clock: "wall", or "processor" for this process's CPU time.
        device: the device of both.
        **settings: further arguments of both classes, e.g. ``policy_kwargs``.
    """
    if backbone not in BACKBONES:
        names = ", ".join(BACKBONES)
        raise DamperError(f"backbone must be one of {names}, but {backbone!r} was given.")
    name, make = backbone.upper(), _on_policy if backbone == "ppo" else _off_policy
    ours = getattr(damper.sb3, name)  # first, because its error says what to install
    package = "sb3_contrib" if backbone == "tqc" else "stable_baselines3"
    theirs = getattr(importlib.import_module(package), name)
    if batch_size is None:
        batch_size = inspect.signature(theirs).parameters["batch_size"].default
    settings, updates = {**settings, "device": device}, 2 * max(1, updates // 2)
    workloads = {
        "plain": make(theirs, updates, batch_size, settings),
        "ours": make(ours, updates, batch_size, {**settings, "method": method}),
    }
    times = time_interleaved(workloads, Plan(rounds * updates, rounds, clock, device), updates)
    medians = times.median_ms("plain"), times.median_ms("ours")
    return Overhead(*medians, times.ratio("ours", "plain"))


def _model(kind: Any, settings: dict[str, Any]) -> Any:
    # SB3 writes into policy_kwargs, so each model gets its own.
    hopper = Spaces(11, np.full(3, -1.0, np.float32), np.full(3, 1.0, np.float32))
    return silent(kind("MlpPolicy", hopper, seed=0, **copy.deepcopy(settings)))


def _off_policy(
    kind: Any, updates: int, batch_size: int, settings: dict[str, Any], rows: int = 5000
) -> Workload:
    """Updates of a model with a replay buffer full of random transitions."""
    model = _model(kind, {"buffer_size": rows, **settings})
    buffer = model.replay_buffer
    _randomise(buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards)
    buffer.full = True
    return whole_train(model, batch_size)


def _on_policy(
    kind: Any, updates: int, batch_size: int, settings: dict[str, Any], length: int = 200
) -> Workload:
    """One epoch of a model with a rollout of random observations."""
    epoch = {"n_steps": updates * batch_size, "n_epochs": 1, "batch_size": batch_size}
    model = _model(kind, {**epoch, **settings})
    buffer = model.rollout_buffer
    _randomise(buffer.observations, buffer.advantages, buffer.returns)
    observations = torch.as_tensor(buffer.observations[:, 0], device=model.device)
    with torch.no_grad():
        outputs = model.policy(observations)
    arrays = (buffer.actions, buffer.values, buffer.log_probs)
    for array, output in zip(arrays, outputs, strict=True):
        array[:] = output.cpu().numpy().reshape(array.shape)
    buffer.episode_starts[::length] = 1.0
    buffer.full = True
    return lambda iterations: model.train()


def _randomise(*arrays: Any) -> None:
    generator = np.random.default_rng(0)
    for array in arrays:
        array[:] = generator.uniform(-1.0, 1.0, array.shape)
