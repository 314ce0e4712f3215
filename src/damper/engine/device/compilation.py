"""Functions for ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any


def with_fresh_code_object(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy ``function`` with a fresh code object.

    Dynamo caches by code object; with guards disabled, a shared one would run another learner's graph.
    """
    if isinstance(function, MethodType):
        return MethodType(with_fresh_code_object(function.__func__), function.__self__)
    assert isinstance(function, FunctionType)
    code, defaults, cells = function.__code__.replace(), function.__defaults__, function.__closure__
    return FunctionType(code, function.__globals__, function.__name__, defaults, cells)
