"""damper: smooth actor-critic policies, with one bounded setting in place of a penalty weight."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from damper.errors import DamperError
from damper.version import __version__

if (
    TYPE_CHECKING
):  # for editors and type checkers; at run time ``__getattr__`` imports a name when it is used
    from damper import interface, metrics, rules, theory
    from damper._backward import backward
    from damper.engine.loop.callbacks import Training
    from damper.engine.run.folder import Run
    from damper.engine.train import train
    from damper.losses import temporal_loss
    from damper.methods import METHODS, Method
    from damper.metrics import smoothness
    from damper.policies.evaluate import Evaluation, evaluate
    from damper.policies.opening import load
    from damper.policies.policy import Policy
    from damper.rules import RULES, GradientReport, combine

_MODULES = ("interface", "jax", "metrics", "rules", "theory")
_HOMES = {
    "backward": "_backward",
    "Training": "engine.loop.callbacks",
    "Run": "engine.run.folder",
    "Policy": "policies.policy",
    "train": "engine.train",
    "Evaluation": "policies.evaluate",
    "evaluate": "policies.evaluate",
    "load": "policies.opening",
    "temporal_loss": "losses",
    "METHODS": "methods",
    "Method": "methods",
    "smoothness": "metrics",
    "RULES": "rules",
    "GradientReport": "rules",
    "combine": "rules",
}

__all__ = [
    "METHODS",
    "RULES",
    "DamperError",
    "Evaluation",
    "GradientReport",
    "Method",
    "Policy",
    "Run",
    "Training",
    "__version__",
    "backward",
    "combine",
    "evaluate",
    "interface",
    "load",
    "metrics",
    "rules",
    "smoothness",
    "temporal_loss",
    "theory",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562): ``import damper`` alone does not wait for torch."""
    if name in _MODULES:
        return import_module(f"damper.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'damper' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"damper.{_HOMES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
