"""Actor-critic backbones, TD3 and SAC: modules of pure functions with the same names."""

from __future__ import annotations

from types import ModuleType

from damper.agents import sac, td3

BACKBONES: dict[str, ModuleType] = {"td3": td3, "sac": sac}

__all__ = ["BACKBONES"]
