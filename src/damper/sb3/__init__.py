"""Stable-Baselines3's TD3 and SAC with one more argument: ``from damper.sb3 import TD3, SAC``."""

from __future__ import annotations

from damper.errors import MissingExtraError

try:
    import stable_baselines3  # noqa: F401
except ImportError as error:
    raise MissingExtraError('damper.sb3 needs Stable-Baselines3: pip install "damper-rl[sb3]".') from error

from damper.sb3.buffers import RemembersRows
from damper.sb3.convert import from_sb3, to_sb3
from damper.sb3.sac import SAC
from damper.sb3.td3 import TD3

__all__ = ["SAC", "TD3", "RemembersRows", "from_sb3", "to_sb3"]
