"""Checks of settings: a number in a range, one of several words, a flag; resolved annotations."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from numbers import Real
from types import SimpleNamespace
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from damper.errors import DamperError

Setting = float | Tensor  # one value, or one per agent [P]


def check_range(name: str, value: Setting, low: float, high: float = float("inf")) -> None:
    """Raise if a setting is outside [low, high] or not finite, unless on a device or in a trace."""
    if torch.compiler.is_compiling() or (isinstance(value, Tensor) and not _is_on_host(value)):
        return
    if not isinstance(value, Real):
        check_is_number(name, value)
    if isinstance(value, Tensor):
        outside = value[~((value >= low) & (value <= high) & value.isfinite())]
        given = outside.flatten()[:1].tolist()
    else:
        given = [] if low <= value <= high and value != float("inf") else [float(value)]
    if given:
        between = f"in [{low:g}, {high:g}]"
        bounds = between if high < float("inf") else f"finite and at least {low:g}"
        fix = "choose a value within these bounds"
        raise DamperError(f"{name} must be {bounds}, but {given[0]:g} was given: {fix}.")


def is_number(value: Any) -> bool:
    """Whether a value may differ between agents: a number, but not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_is_number(name: str, value: Setting) -> None:
    """Raise for what is neither a number nor a tensor of real numbers."""
    if not isinstance(value, Tensor | Real) or (isinstance(value, Tensor) and value.is_complex()):
        raise DamperError(
            f"{name} must be a number or a tensor, but {value!r} was given: convert it first."
        )


def _is_on_host(tensor: Tensor) -> bool:
    """Whether the values can be read: on the CPU, and not hidden by a ``torch.func`` transform."""
    return tensor.is_cpu and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise if a word is none of the choices."""
    if value not in choices:
        listed = " or ".join(map(repr, choices))
        raise DamperError(f"{name} must be {listed}, but {value!r} was given: choose one of them.")


def check_flag(name: str, value: bool) -> None:
    """Raise if a value is neither True nor False: most words and numbers would count as True."""
    if not isinstance(value, bool):
        requirement = f"{name} must be True or False, the same for all agents"
        raise DamperError(f"{requirement}, but {value!r} was given.")


def resolved_hints(function: Callable[..., Any], names: Iterable[str]) -> dict[str, Any]:
    """The resolved annotations of the named parameters, but for those only a type checker knows."""
    parameters = inspect.signature(function).parameters
    while isinstance(function, functools.partial):
        function = function.func
    inner: Any = inspect.unwrap(function)
    home = inner if hasattr(inner, "__globals__") else type(inner).__call__
    # Common names that often only a type checker imports.
    usual = {"Literal": Literal, "Setting": Setting, "Tensor": Tensor, "torch": torch}
    namespace = {**usual, **getattr(home, "__globals__", {})}
    hints: dict[str, Any] = {}
    for name in parameters.keys() & set(names):
        holder = SimpleNamespace(__annotations__={name: parameters[name].annotation})
        with suppress(AttributeError, NameError, SyntaxError, TypeError):
            hints |= get_type_hints(holder, namespace)
    return hints
