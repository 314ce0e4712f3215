"""damper: smooth actor-critic policies, with one bounded setting in place of a penalty weight."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from damper.errors import DamperError as DamperError
from damper.version import __version__ as __version__

# For editors and type checkers; at run time ``__getattr__`` imports a name when it is used.
if TYPE_CHECKING:
    from damper import interface as interface
    from damper import metrics as metrics
    from damper import rules as rules
    from damper import theory as theory
    from damper._backward import backward as backward
    from damper.engine.loop.callbacks import Training as Training
    from damper.engine.run.folder import Run as Run
    from damper.engine.train import train as train
    from damper.losses import temporal_loss as temporal_loss
    from damper.methods import METHODS as METHODS
    from damper.methods import Method as Method
    from damper.metrics import smoothness as smoothness
    from damper.policies.evaluate import Evaluation as Evaluation
    from damper.policies.evaluate import evaluate as evaluate
    from damper.policies.opening import load as load
    from damper.policies.policy import Policy as Policy
    from damper.rules import RULES as RULES
    from damper.rules import GradientReport as GradientReport
    from damper.rules import combine as combine

_MODULES = ("interface", "metrics", "rules", "theory")
_HOMES = {
    "backward": "_backward",
    "Training": "engine.loop.callbacks",
    "Run": "engine.run.folder",
    "train": "engine.train",
    "temporal_loss": "losses",
    "METHODS": "methods",
    "Method": "methods",
    "smoothness": "metrics",
    "Evaluation": "policies.evaluate",
    "evaluate": "policies.evaluate",
    "load": "policies.opening",
    "Policy": "policies.policy",
    "RULES": "rules",
    "GradientReport": "rules",
    "combine": "rules",
}
__all__ = ["DamperError", "__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562), so that ``import damper`` is quick."""
    if name in _MODULES or name == "jax":
        return import_module(f"damper.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'damper' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"damper.{_HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
