"""Other implementations of TD3 and SAC with the same networks, batch and transitions: Stable-Baselines3 and SBX."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import torch

from damper.bench.interleaved_timing import Workload
from damper.bench.workloads import ExecutionMode, Transitions
from damper.engine.envs import Spec

NET_ARCH = {"td3": (400, 300), "sac": (256, 256)}


class Spaces(gymnasium.Env[Any, Any]):
    """An environment's spaces and nothing else: only updates are timed."""

    def __init__(self, spec: Spec) -> None:
        """Spaces of ``spec``."""
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (spec.obs_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(spec.low, spec.high, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Zeros."""
        return np.zeros(self.observation_space.shape or (), np.float32), {}


def has_sb3() -> bool:
    """Whether Stable-Baselines3 is installed."""
    return find_spec("stable_baselines3") is not None


def has_sbx() -> bool:
    """Whether SBX is installed."""
    return find_spec("sbx") is not None


def sb3_model(data: Transitions, backbone: str, mode: ExecutionMode, method: str | None = None) -> Any:
    """SB3's model, or with ``method`` our class on top of it, its buffer full of ``data``."""
    package = importlib.import_module("stable_baselines3" if method is None else "damper.sb3")
    own: dict[str, Any] = {} if method is None else {"method": method}
    if method == "damper":
        own["eta"] = 0.0
    model = getattr(package, backbone.upper())(**_alike(data, backbone, mode, torch.nn.SiLU), device=mode.device, **own)
    return _ready(model, data)


def sbx_model(data: Transitions, backbone: str, mode: ExecutionMode) -> Any:
    """SBX's model (JAX, compiled), its buffer full of ``data``."""
    sbx, nn = importlib.import_module("sbx"), importlib.import_module("flax.linen")
    model = getattr(sbx, backbone.upper())(**_alike(data, backbone, mode, nn.silu))
    return _ready(model, data)


def _alike(data: Transitions, backbone: str, mode: ExecutionMode, silu: Any) -> dict[str, Any]:
    """What every peer is made with."""
    return {
        "policy": "MlpPolicy",
        "env": Spaces(data.spec),
        "buffer_size": len(data.rows),
        "learning_rate": 3e-4,
        "batch_size": mode.batch_size,
        "policy_kwargs": {"net_arch": list(NET_ARCH[backbone]), "activation_fn": silu},
        "seed": 0,
    }


def _ready(model: Any, data: Transitions) -> Any:
    """The model with a silent log and its buffer full of ``data``."""
    model.set_logger(importlib.import_module("stable_baselines3.common.logger").configure(None, []))
    _fill(model.replay_buffer, data)
    return model


def _fill(buffer: Any, data: Transitions) -> None:
    d, a = data.spec.obs_dim, data.spec.act_dim
    obs, action, next_obs, scalars = (part.numpy() for part in data.rows.split((d, a, d, 3), -1))
    buffer.observations[:, 0], buffer.actions[:, 0], buffer.next_observations[:, 0] = obs, action, next_obs
    buffer.rewards[:, 0], buffer.dones[:, 0] = scalars[:, 0], scalars[:, 1]
    buffer.full = True


def whole_train(model: Any, batch_size: int) -> Workload:
    """The model's own ``train``: sampling, update, target copies, its log."""

    def run(iterations: int) -> None:
        model.train(gradient_steps=iterations, batch_size=batch_size)

    return run


def paper_train(model: Any, backbone: str, batch_size: int) -> Workload:
    """SB3's ``train`` in the paper's scope: one fixed batch, no target copies; its log has no output."""
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
