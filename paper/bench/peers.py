"""Compare whole updates with those of Stable-Baselines3 and SBX, with the same networks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from damper.protocols import protocol_settings
from paper.bench.interleaved_timing import Plan, Workload, time_interleaved
from paper.bench.result import Measurement
from paper.bench.workloads import ExecutionMode, Subjects, Transitions, make_learner, whole_update

SCOPE = (
    "A whole update as training does it: sampling, noise, forward passes, losses, gradients, "
    "optimiser steps, target copies, sums for the log. Every row has the same networks, batch size "
    "and transitions; DAMPER with η = 0."
)
WARM_UP = 20


class Spaces(gymnasium.Env[Any, Any]):
    """An environment that has only spaces, since only updates are timed."""

    def __init__(self, obs_dim: int, low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
        """Observations have ``obs_dim`` entries, actions lie between ``low`` and ``high``."""
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return zeros."""
        return np.zeros(self.observation_space.shape or (), np.float32), {}


def has_sb3() -> bool:
    """Whether Stable-Baselines3 is installed."""
    return find_spec("stable_baselines3") is not None


def has_sbx() -> bool:
    """Whether SBX is installed."""
    return find_spec("sbx") is not None


def sb3_model(
    data: Transitions, backbone: str, mode: ExecutionMode, method: str | None = None
) -> Any:
    """SB3's model, or our subclass if ``method`` is given, its buffer full of ``data``."""
    package = importlib.import_module("stable_baselines3" if method is None else "damper.sb3")
    settings = _shared_kwargs(data, backbone, mode, torch.nn.SiLU) | {"device": mode.device}
    settings |= {} if method is None else {"method": method}
    settings |= {"eta": 0.0} if method == "damper" else {}
    return _ready(getattr(package, backbone.upper())(**settings), data)


def sbx_model(data: Transitions, backbone: str, mode: ExecutionMode) -> Any:
    """SBX's model (JAX, compiled), its buffer full of ``data``."""
    sbx, nn = importlib.import_module("sbx"), importlib.import_module("flax.linen")
    model = getattr(sbx, backbone.upper())(**_shared_kwargs(data, backbone, mode, nn.silu))
    return _ready(model, data)


def _shared_kwargs(
    data: Transitions, backbone: str, mode: ExecutionMode, silu: Any
) -> dict[str, Any]:
    """Constructor arguments shared by all models."""
    settings = protocol_settings("authors", backbone, None)  # those of the engine's learners
    return {
        "policy": "MlpPolicy",
        "env": Spaces(data.spec.obs_dim, data.spec.low, data.spec.high),
        "buffer_size": len(data.rows),
        "learning_rate": settings["learning_rate"],
        "batch_size": mode.batch_size,
        "policy_kwargs": {"net_arch": list(settings["net_arch"]), "activation_fn": silu},
        "seed": 0,
    }


def silent(model: Any) -> Any:
    """Give the model a logger without output."""
    model.set_logger(importlib.import_module("stable_baselines3.common.logger").configure(None, []))
    return model


def _ready(model: Any, data: Transitions) -> Any:
    """Fill the model's buffer with ``data`` and silence its log."""
    d, a = data.spec.obs_dim, data.spec.act_dim
    obs, action, next_obs, scalars = (part.numpy() for part in data.rows.split((d, a, d, 3), -1))
    buffer = model.replay_buffer
    buffer.observations[:, 0], buffer.next_observations[:, 0] = obs, next_obs
    buffer.actions[:, 0] = action
    buffer.rewards[:, 0], buffer.dones[:, 0] = scalars[:, 0], scalars[:, 1]
    buffer.full = True
    return silent(model)


def whole_train(model: Any, batch_size: int) -> Workload:
    """The model's own ``train``: sampling, updates, target copies, logging."""

    def run(iterations: int) -> None:
        model.train(gradient_steps=iterations, batch_size=batch_size)

    return run


def paper_train(model: Any, backbone: str, batch_size: int) -> Workload:
    """SB3's ``train`` in the paper's scope: one fixed batch, no target copies, a silent log."""
    samples = model.replay_buffer.sample(batch_size)
    model.replay_buffer.sample = lambda *_, **__: samples

    def run(iterations: int) -> None:
        with _no_target_copies(backbone):
            model.train(gradient_steps=iterations, batch_size=batch_size)

    return run


@contextmanager
def _no_target_copies(backbone: str) -> Iterator[None]:
    module: Any = importlib.import_module(f"stable_baselines3.{backbone}.{backbone}")
    copy = module.polyak_update
    module.polyak_update = lambda *_, **__: None
    try:
        yield
    finally:
        module.polyak_update = copy


def compare_implementations(subjects: Subjects, mode: ExecutionMode, plan: Plan) -> Measurement:
    """Time our, SB3's and SBX's updates in turns; a library that is not installed has no row."""
    rows: list[dict[str, object]] = []
    for backbone in subjects.backbones:
        workloads = _workloads(subjects, mode, backbone)
        times = time_interleaved(workloads, plan, WARM_UP)
        base = "SB3 plain" if "SB3 plain" in workloads else next(iter(workloads))
        for name in workloads:
            row: dict[str, object] = {"backbone": backbone.upper(), "implementation": name}
            row |= {"ms": times.median_ms(name), f"× {base}": times.ratio(name, base)}
            rows.append({**row, "× faster": times.ratio(base, name)})
    record = mode.record() | plan.record()
    title = f"Whole updates, {subjects.data.env}"
    return Measurement("peers", title, SCOPE, rows, ("ms",), record)


def _workloads(subjects: Subjects, mode: ExecutionMode, backbone: str) -> dict[str, Workload]:
    data, methods = subjects.data, subjects.methods
    workloads = {
        f"damper engine {m}": whole_update(make_learner(data, backbone, m, mode)) for m in methods
    }
    if has_sb3():
        workloads["SB3 plain"] = whole_train(sb3_model(data, backbone, mode), mode.batch_size)
        for method in methods:
            if method != "plain":
                model = sb3_model(data, backbone, mode, method)
                workloads[f"damper.sb3 {method}"] = whole_train(model, mode.batch_size)
    if has_sbx() and mode.device == "cpu":
        workloads["SBX plain"] = whole_train(sbx_model(data, backbone, mode), mode.batch_size)
    return workloads
