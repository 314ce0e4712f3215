"""The settings of a run: the dataclass, completing settings, and checking them."""

from __future__ import annotations

from damper._checks import is_number
from damper.engine.settings.checks import check_settings
from damper.engine.settings.devices import find_device
from damper.engine.settings.resolving import (
    DEFAULT_SEEDS,
    METHOD_PARTS,
    accept_sb3_names,
    pick_seeds,
    population_settings,
    resolve,
)
from damper.engine.settings.settings import Settings
from damper.settings import EXECUTION, PER_AGENT

__all__ = ["DEFAULT_SEEDS", "EXECUTION", "METHOD_PARTS", "PER_AGENT", "Settings", "is_number"]
__all__ += ["accept_sb3_names", "check_settings", "find_device", "pick_seeds"]
__all__ += ["population_settings", "resolve"]
