"""Stable-Baselines3's and sb3-contrib's classes with one more argument."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from damper.errors import DamperError, MissingExtraError

try:
    import stable_baselines3  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        'damper.sb3 needs Stable-Baselines3: pip install "damper-rl[sb3]".'
    ) from error

from damper.sb3.buffers import IndexedReplayBuffer, IndexedRolloutBuffer
from damper.sb3.convert import from_sb3, to_sb3
from damper.sb3.ppo import PPO
from damper.sb3.sac import SAC
from damper.sb3.td3 import DDPG, TD3
from damper.sb3.vec_env import EnvPoolVecEnv

if TYPE_CHECKING:
    from damper.sb3.recurrent_ppo import RecurrentPPO
    from damper.sb3.tqc import TQC

__all__ = [
    "DDPG",
    "PPO",
    "SAC",
    "TD3",
    "TQC",
    "EnvPoolVecEnv",
    "IndexedReplayBuffer",
    "IndexedRolloutBuffer",
    "RecurrentPPO",
    "from_sb3",
    "to_sb3",
]


_CONTRIB = {"TQC": "damper.sb3.tqc", "RecurrentPPO": "damper.sb3.recurrent_ppo"}


class _MissingNameError(DamperError, ImportError):
    """For ``from damper.sb3 import A2C``: Python would reword an AttributeError."""


def __getattr__(name: str) -> Any:
    """Import what needs sb3-contrib when it is used; any other name raises one sentence."""
    if name in _CONTRIB:
        return getattr(importlib.import_module(_CONTRIB[name]), name)
    # Python also looks up submodules and special names here.
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    discrete = name in ("DQN", "QRDQN", "MaskablePPO")
    reason = ", whose actions are discrete and have no mean" if discrete else ""
    raise _MissingNameError(
        "damper.sb3 has TD3, SAC, PPO, DDPG, TQC and RecurrentPPO, but no "
        f"{name}{reason}: import it from stable_baselines3 or sb3_contrib, or train with one of "
        "these."
    )
