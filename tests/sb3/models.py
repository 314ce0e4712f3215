"""What the tests share: small models, their weights, and an environment that counts."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.envs import SimpleMultiObsEnv
from stable_baselines3.common.logger import configure

import damper.sb3

NAMES = ("td3", "sac", "ddpg", "tqc", "ppo")
OURS = {name: getattr(damper.sb3, name.upper()) for name in NAMES}
THEIRS = {
    name: getattr(sb3_contrib if name == "tqc" else stable_baselines3, name.upper())
    for name in NAMES
}
SMALL: dict[str, Any] = {
    "learning_starts": 50,
    "buffer_size": 5000,
    "batch_size": 32,
    "seed": 1,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [16, 16], "activation_fn": torch.nn.SiLU},
}
SMALL_PPO: dict[str, Any] = {
    "n_steps": 50,
    "batch_size": 32,
    "n_epochs": 3,
    "seed": 1,
    "device": "cpu",
}
SMALL_PPO["policy_kwargs"] = SMALL["policy_kwargs"]


def make(kind: type, env: Any = "Pendulum-v1", **settings: Any) -> Any:
    small = SMALL_PPO if issubclass(kind, stable_baselines3.PPO) else SMALL
    # SB3 writes into policy_kwargs, so each model gets its own.
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "You have specified a mini-batch size of"
        )  # a last, smaller one is wanted
        return kind(
            settings.pop("policy", "MlpPolicy"), env, **copy.deepcopy({**small, **settings})
        )


def weights(model: Any) -> torch.Tensor:
    """Every parameter of the policy, targets included."""
    return torch.cat([p.detach().reshape(-1) for p in model.policy.parameters()])


def optimizer(model: Any) -> torch.optim.Optimizer:
    """The one that moves the actor."""
    return (
        model.policy.optimizer
        if isinstance(model, stable_baselines3.PPO)
        else model.actor.optimizer
    )


def taken(model: Any) -> np.ndarray:
    """The actions in its buffer."""
    buffer = (
        model.rollout_buffer if isinstance(model, stable_baselines3.PPO) else model.replay_buffer
    )
    return buffer.actions


def quiet(model: Any) -> Any:
    """A model whose ``train`` can be called outside ``learn``."""
    model.set_logger(configure(None, []))
    return model


def check_learned(model: Any, steps: int, **kwargs: Any) -> None:
    """Learn for so many steps: there must be updates with the method's loss."""
    before = weights(quiet(model)).clone()
    model.learn(steps, log_interval=None, **kwargs)
    after = weights(model)
    assert model._n_updates > 0 and after.isfinite().all() and not torch.equal(after, before)
    assert model.logger.name_to_value["train/auxiliary_loss"] > 0


def dict_env() -> SimpleMultiObsEnv:
    """SB3's environment with image and vector, started in a corner, which has a way out."""
    return SimpleMultiObsEnv(random_start=False, discrete_actions=False)


class Counter(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observations (episode, step), in episodes of ``length`` steps: their neighbours are known."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 5, ends: str = "terminated") -> None:
        self.length, self.ends, self.episode, self.count = length, ends, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.count = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        over = self.count == self.length
        return (
            self.observe(),
            1.0,
            over and self.ends == "terminated",
            over and self.ends == "truncated",
            {},
        )

    def observe(self) -> np.ndarray:
        return np.array([self.episode, self.count], np.float32)
