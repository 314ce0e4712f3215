"""Identity of the user's own code (environments, losses, rules): name, and digest of its file."""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
import os
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
PLAIN = (str, int, float, bool, type(None))


def identify(function: Callable[..., Any]) -> str:
    """``module:qualified.name``, followed by a digest for the user's own code.

    The digest covers the whole file that defines the function or class, as it is on disk, the files
    of what a decorator or a partial wraps, and the numbers and words that a partial, an object, a
    closure or default arguments hold. It does not see other files, base classes in them included,
    other values such as arrays and dicts, or what the code reads when it runs.
    """
    definitions = _definitions(function)
    name = f"{definitions[-1].__module__}:{definitions[-1].__qualname__}"
    if is_shipped(function):
        return name
    texts = [_source(part) for part in definitions]
    texts += [repr(_plain_values(layer)) for layer in _layers(function)]
    return f"{name} {hashlib.blake2b(''.join(texts).encode(), digest_size=8).hexdigest()}"


def is_shipped(function: Callable[..., Any]) -> bool:
    """Whether a function, and any function that it wraps, is defined in this package."""
    return all(_file(part).startswith(PACKAGE) for part in _definitions(function))


def has_stable_name(function: Callable[..., Any]) -> bool:
    """Whether a function's name identifies it; not of lambdas, local functions, objects."""
    if isinstance(function, functools.partial):
        held = (*function.args, *function.keywords.values())
        return has_stable_name(function.func) and all(isinstance(value, PLAIN) for value in held)
    if isinstance(function, MethodType) and not isinstance(function.__self__, type):
        return False
    return "<" not in getattr(function, "__qualname__", "<object>")


def has_source(function: Callable[..., Any]) -> bool:
    """Whether the digest sees the code; not where it was typed in, but for IPython."""
    return all(_is_installed(part) or _source(part) for part in _definitions(function))


def registered_env(env_id: str) -> Callable[..., Any] | None:
    """The user's class or function that Gymnasium makes an environment from, if it can be imported.

    None for environments of installed packages.
    """
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    entry = spec and spec.entry_point
    if entry is None or str(entry).startswith("gymnasium."):
        return None
    try:
        creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    except (ImportError, AttributeError, gymnasium.error.Error):
        return None  # reported where the environment is made
    return None if all(map(_is_installed, _definitions(creator))) else creator


def _layers(part: Any) -> Iterator[Any]:
    """An object, then what it wraps or is made from, down to a function or class."""
    while part is not None:
        yield part
        if isinstance(part, functools.partial):
            part = part.func
        elif isinstance(part, MethodType):
            part = part.__func__
        elif hasattr(part, "__qualname__"):
            part = getattr(part, "__wrapped__", None)
        else:
            part = type(part)


def _definitions(part: Any) -> list[Any]:
    """The functions and classes among the layers."""
    return [layer for layer in _layers(part) if hasattr(layer, "__qualname__")]


def _file(part: Any) -> str:
    """The file that defines a function or class; "" for one without."""
    try:
        return inspect.getfile(part)
    except (OSError, TypeError):
        # A notebook's class has no file, but its functions have that of their cell.
        members = vars(part).values() if inspect.isclass(part) else ()
        return next((m.__code__.co_filename for m in members if hasattr(m, "__code__")), "")


def _is_installed(part: Any) -> bool:
    return _file(part).startswith(INSTALLED)


def _source(part: Any) -> str:
    """The text of the user's file, as `inspect` reads it: IPython keeps that of its cells there."""
    if _is_installed(part):
        return ""  # a package's code is known by its version, which manifests hold
    linecache.checkcache(_file(part))
    return "".join(linecache.getlines(_file(part)))


def _plain_values(part: Any) -> dict[str, Any]:
    """The numbers and words that tell an object from others of its code, by name or position."""
    held: dict[Any, Any] = {}
    if isinstance(part, functools.partial):
        held = dict(enumerate(part.args)) | part.keywords
    elif inspect.isfunction(part):
        # The line tells lambdas of one file apart, the defaults those of one line in a loop.
        held = {"line": part.__code__.co_firstlineno, **dict(enumerate(part.__defaults__ or ()))}
        held |= dict(inspect.getclosurevars(part).nonlocals)
    elif not inspect.isclass(part):
        held = getattr(getattr(part, "__self__", part), "__dict__", {})
    return dict(sorted((str(name), v) for name, v in held.items() if isinstance(v, PLAIN)))
