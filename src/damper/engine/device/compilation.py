"""Prepare functions for ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any


def with_fresh_code_object(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy ``function`` with a fresh code object.

    Dynamo caches by code object, eight versions of each: a process may make more learners than that.
    """
    if isinstance(function, MethodType):
        return MethodType(with_fresh_code_object(function.__func__), function.__self__)
    assert isinstance(function, FunctionType)
    code, defaults, cells = function.__code__.replace(), function.__defaults__, function.__closure__
    return FunctionType(code, function.__globals__, function.__name__, defaults, cells)
