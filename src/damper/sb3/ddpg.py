"""Stable-Baselines3's DDPG with one more argument."""

from __future__ import annotations

from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.td3.policies import TD3Policy

from damper.method_args import ETA
from damper.methods import Method
from damper.rules import Rule
from damper.sb3.common.mixin import init_arguments
from damper.sb3.td3 import TD3Base


class DDPG(TD3Base, stable_baselines3.DDPG):
    """``stable_baselines3.DDPG`` made smooth; with ``method="plain"`` SB3's, bit for bit.

    Args:
        policy: as in SB3, and so are all others up to ``device``.
        method: a name in ``damper.METHODS``, a composed one ("damper+grad-caps+pave"), or a
            ``Method``.
        eta: DAMPER's η in [0, 1]: 0 is the least, 1 the most smoothing; or a schedule, as for
            ``learning_rate``.
        rule: another rule for the auxiliary gradient: a name in ``damper.rules.RULES``, or a
            callable.
        auxiliary: another actor loss than the temporal one: "caps", "grad-caps", "asap", "l2c2".
        critic: an additional loss on the critic: "pave" or "l2c2".
        **settings: the method's own settings, such as ``lambda_T`` of "caps".

    Example:
        >>> from damper.sb3 import DDPG
        >>> model = DDPG("MlpPolicy", "Pendulum-v1", learning_starts=50, buffer_size=1000)
        >>> model = model.learn(60)
    """

    def __init__(
        self,
        policy: str | type[TD3Policy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
        *,
        method: str | Method = "damper",
        eta: float | str | Schedule = ETA,
        rule: str | Rule | None = None,
        auxiliary: str | None = None,
        critic: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**init_arguments(locals()))
