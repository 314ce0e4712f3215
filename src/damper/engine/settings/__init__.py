"""The settings of a run: the dataclass, completing settings, and checking them."""

from __future__ import annotations

from damper.engine.settings.checks import check_settings
from damper.engine.settings.devices import find_device
from damper.engine.settings.names import accept_sb3_names, complete_settings, current_names
from damper.engine.settings.resolving import (
    DEFAULT_SEEDS,
    METHOD_PARTS,
    pick_seeds,
    population_settings,
    resolve,
)
from damper.engine.settings.settings import BACKBONE_ONLY, EXECUTION, PER_AGENT, Settings, is_number

__all__ = [
    "BACKBONE_ONLY",
    "DEFAULT_SEEDS",
    "EXECUTION",
    "METHOD_PARTS",
    "PER_AGENT",
    "Settings",
    "accept_sb3_names",
    "check_settings",
    "complete_settings",
    "current_names",
    "find_device",
    "is_number",
    "pick_seeds",
    "population_settings",
    "resolve",
]
