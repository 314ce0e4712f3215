"""Checks of settings: a number in a range, one of some words, a flag."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from damper.errors import DamperError

Setting = float | Tensor  # one value, or one per agent [P]


def check_range(name: str, value: Setting, low: float, high: float = float("inf")) -> None:
    """Refuse a setting outside [low, high] or not finite; nothing is read in a trace or from a device."""
    if torch.compiler.is_compiling() or (isinstance(value, Tensor) and not _is_on_host(value)):
        return
    if not isinstance(value, Tensor | Real) or (isinstance(value, Tensor) and value.is_complex()):
        raise DamperError(f"{name} must be a number or a tensor, but {value!r} was given: convert it first.")
    if isinstance(value, Tensor):
        outside = value[~((value >= low) & (value <= high) & value.isfinite())]
        given = outside.flatten()[:1].tolist()
    else:
        given = [] if low <= value <= high and value != float("inf") else [float(value)]
    if given:
        bounds = f"in [{low:g}, {high:g}]" if high < float("inf") else f"finite and at least {low:g}"
        raise DamperError(f"{name} must be {bounds}, but {given[0]:g} was given: choose a value within these bounds.")


def _is_on_host(tensor: Tensor) -> bool:
    """Whether its values can be read: no device must be waited for, and no transform of ``torch.func`` hides them."""
    return tensor.is_cpu and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is none of the choices."""
    if value not in choices:
        known = " or ".join(map(repr, choices))
        raise DamperError(f"{name} must be {known}, but {value!r} was given: choose one of them.")


def check_flag(name: str, value: bool) -> None:
    """Refuse what is neither True nor False: most words and numbers would count as True."""
    if not isinstance(value, bool):
        raise DamperError(f"{name} must be True or False, the same for all agents, but {value!r} was given.")
