"""rsl_rl's PPO with a smooth mean action: ``class_name: "damper.rsl_rl:PPO"``."""

from __future__ import annotations

from damper.errors import MissingExtraError

try:
    import rsl_rl.algorithms  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        'damper.rsl_rl needs rsl-rl-lib 5: pip install "damper-rl[rsl-rl]".'
    ) from error

from damper.rsl_rl.ppo import PPO

__all__ = ["PPO"]
