"""Identity of the user's own code (environments, losses, rules): module, qualified name and a digest of the source."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType, MethodType
from typing import Any

PLAIN = (str, int, float, bool, type(None))


def is_shipped(function: Callable[..., Any]) -> bool:
    """Whether a function, and any function that it wraps, is defined in this package."""
    if isinstance(function, functools.partial):
        return is_shipped(function.func)
    claimed, actual = function.__module__, getattr(function, "__globals__", {}).get("__name__")
    wrapped = getattr(function, "__wrapped__", None)
    inside = all(str(home).split(".")[0] == "damper" for home in (claimed, actual or claimed))
    return inside and (wrapped is None or is_shipped(wrapped))


def has_stable_name(function: Callable[..., Any]) -> bool:
    """Whether module and qualified name identify a function; False for lambdas, local functions, objects with state."""
    if isinstance(function, functools.partial):
        return has_stable_name(function.func) and all(isinstance(value, PLAIN) for value in _captured(function))
    if isinstance(function, MethodType) and not isinstance(function.__self__, type):
        return False
    return "<" not in getattr(function, "__qualname__", "<object>")


def identify(function: Callable[..., Any]) -> str:
    """Return ``module:qualified.name``, followed by a digest for the user's own code.

    The digest covers the source, plain values in closures, defaults and ``functools.partial``, and the plain values,
    functions and classes of the same module that the source names; not other objects, nor other modules.
    """
    inner = function.func if isinstance(function, functools.partial) else function
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    name = f"{named.__module__}:{named.__qualname__}"
    if is_shipped(function):
        return name
    plain = [value for value in _captured(function) if isinstance(value, PLAIN)]
    text = _source(named) + (repr(plain) if plain else "") + "".join(_named_in_module(named, {named}))
    return f"{name} {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _captured(function: Any) -> list[Any]:
    """Values in the function's closure and defaults, or the arguments of a ``functools.partial``."""
    if isinstance(function, functools.partial):
        return [*function.args, *(part for pair in sorted(function.keywords.items()) for part in pair)]
    captured = list(getattr(function, "__defaults__", None) or ())
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # an empty cell
            captured.append(cell.cell_contents)
    return captured


def _named_in_module(part: Any, visited: set[Any]) -> Iterator[str]:
    """Texts of the plain values, functions and classes of its module that ``part`` uses, directly or indirectly."""
    members = [value for _, value in inspect.getmembers(part, inspect.isroutine)] if inspect.isclass(part) else [part]
    functions = [f for f in map(inspect.unwrap, members) if hasattr(f, "__code__") and f.__module__ == part.__module__]
    home = functions[0].__globals__ if functions else {}
    names = {name for function in functions for name in _names(function.__code__)}
    names |= {base.__name__ for base in getattr(part, "__mro__", ())}
    for name in sorted(names & home.keys()):
        value = home[name]
        if isinstance(value, PLAIN) and not name.startswith("__"):
            yield f"{name} = {value!r}"
            continue
        code = inspect.isfunction(value) or inspect.isclass(value)
        if code and value.__module__ == part.__module__ and value not in visited:
            visited.add(value)
            yield _source(value)
            yield from _named_in_module(value, visited)


def _names(code: CodeType) -> set[str]:
    """All names that the code looks up outside itself, including those in nested functions."""
    inner = (value for value in code.co_consts if isinstance(value, CodeType))
    return {*code.co_names, *(name for one in inner for name in _names(one))}


def _source(function: Any) -> str:
    """The source, or the bytecode where there is no source (an interactive session)."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        parts = vars(function).values() if inspect.isclass(function) else [function]
        return " ".join(_instructions(part.__code__) for part in parts if hasattr(part, "__code__"))


def _instructions(code: CodeType) -> str:
    constants = [_instructions(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
