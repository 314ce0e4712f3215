"""Identity of the user's own code (environments, losses, rules): module, qualified name and a digest of the source."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import CodeType, MethodType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

PLAIN = (str, int, float, bool, type(None))
# A module's containers and their text by id, which they keep by being here.
_FIRST_READ: dict[int, tuple[Any, str]] = {}
_LOOKS_UP = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


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
        return has_stable_name(function.func) and all(
            isinstance(value, PLAIN) for value in _captured(function)
        )
    if isinstance(function, MethodType) and not isinstance(function.__self__, type):
        return False
    return "<" not in getattr(function, "__qualname__", "<object>")


def registered_env(env_id: str) -> Callable[..., Any] | None:
    """The user's own class or function that Gymnasium makes an environment from; its module has been imported.

    None for environments of installed packages, and for those without a stable name.
    """
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    entry = spec and spec.entry_point
    if entry is None or str(entry).startswith("gymnasium."):
        return None
    try:
        creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    except (
        ImportError,
        AttributeError,
        gymnasium.error.Error,
    ):  # reported where the environment is made
        return None
    return None if _is_installed(creator) or not has_stable_name(creator) else creator


def _is_installed(part: Any) -> bool:
    try:
        file = inspect.getfile(inspect.unwrap(part))
    except (OSError, TypeError):  # an interactive session has no files
        return False
    return file.startswith((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))


def identify(function: Callable[..., Any]) -> str:
    """Return ``module:qualified.name``, followed by a digest for the user's own code.

    The digest covers the source, data in closures, defaults and ``functools.partial``, and the
    data, functions and classes of the same module that the source names; not other objects, nor
    other modules. Data are numbers, strings, arrays, and lists, dicts and dataclasses of them.
    """
    inner = function.func if isinstance(function, functools.partial) else function
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    name = f"{named.__module__}:{named.__qualname__}"
    if is_shipped(function):
        return name
    captured = [text for value in _captured(function) if (text := _data(value)) is not None]
    text = (
        _source(named)
        + (f"[{', '.join(captured)}]" if captured else "")
        + "".join(_named_in_module(named, {named}))
    )
    return f"{name} {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def read_anew() -> None:
    """Forget the containers read so far: between two calls of ``damper.train`` their owner may have changed them."""
    _FIRST_READ.clear()


def _captured(function: Any) -> list[Any]:
    """Values in the function's closure and defaults, or the arguments of a ``functools.partial``."""
    if isinstance(function, functools.partial):
        return [
            *function.args,
            *(part for pair in sorted(function.keywords.items()) for part in pair),
        ]
    captured = list(getattr(function, "__defaults__", None) or ())
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # an empty cell
            captured.append(cell.cell_contents)
    return captured


def _named_in_module(part: Any, visited: set[Any]) -> Iterator[str]:
    """Texts of the data, functions and classes of its module that ``part`` names, directly or indirectly."""
    members = (
        [value for _, value in inspect.getmembers(part, inspect.isroutine)]
        if inspect.isclass(part)
        else [part]
    )
    functions = [
        f
        for f in map(inspect.unwrap, members)
        if hasattr(f, "__code__") and f.__module__ == part.__module__
    ]
    home = functions[0].__globals__ if functions else {}
    names = {base.__name__ for base in getattr(part, "__mro__", ())}.union(
        *map(_names, _codes(part, functions))
    )
    for name in sorted(names & home.keys()):
        value = home[name]
        if (data := _module_data(value)) is not None and not name.startswith("__"):
            yield f"{name} = {data}"
            continue
        code = inspect.isfunction(value) or inspect.isclass(value)
        if code and value.__module__ == part.__module__ and value not in visited:
            visited.add(value)
            yield _source(value)
            yield from _named_in_module(value, visited)


def _codes(part: Any, functions: list[Any]) -> Iterator[CodeType]:
    """The functions' code, and that of the definition itself: decorators, defaults and a class's attributes."""
    yield from (function.__code__ for function in functions)
    if "<lambda>" not in part.__qualname__:  # whose source is the statement around it
        with suppress(OSError, TypeError, SyntaxError):  # without source
            yield compile(textwrap.dedent(inspect.getsource(part)), "<source>", "exec")


def _names(code: CodeType) -> set[str]:
    """All names that the code looks up outside itself, including those in nested functions."""
    inner = (value for value in code.co_consts if isinstance(value, CodeType))
    own = (one.argval for one in dis.get_instructions(code) if one.opname in _LOOKS_UP)
    return {*own, *(name for one in inner for name in _names(one))}


def _module_data(value: Any) -> str | None:
    """Data as text; a container's as first read, since what environments add to it, as to a cache, is no edit."""
    if id(value) not in _FIRST_READ:
        data = _data(value)
        if data is None or isinstance(value, PLAIN):
            return data
        _FIRST_READ[id(value)] = value, data
    return _FIRST_READ[id(value)][1]


def _data(value: Any, around: tuple[Any, ...] = ()) -> str | None:
    """Data as text, including nested data; None for any other object, and for data that contain themselves."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, type) or any(value is one for one in around):
        return None
    inner = functools.partial(_data, around=(*around, value))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:  # may be large
        return f"{value.dtype} {value.shape} {hashlib.blake2b(value.tobytes()).hexdigest()}"
    if hasattr(
        type(value), "tolist"
    ):  # NumPy's and torch's; NDArray has it too, but its type does not
        return f"{type(value).__name__} {inner(value.tolist())}"
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name, None) for field in fields(value)}
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(sorted(f'{inner(key)}: {inner(own)}' for key, own in value.items()))}}}"
        )
    if isinstance(value, list | tuple | set | frozenset):
        parts = [str(inner(one)) for one in value]
        return f"[{', '.join(sorted(parts) if isinstance(value, set | frozenset) else parts)}]"
    return None


def _source(function: Any) -> str:
    """The source, or the bytecode and a class's data where there is no source (an interactive session)."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        parts = vars(function).items() if inspect.isclass(function) else [("", function)]
        code = [_instructions(part.__code__) for _, part in parts if hasattr(part, "__code__")]
        named = (
            (name, _module_data(part)) for name, part in parts if name and not name.startswith("__")
        )
        return " ".join([*code, *(f"{name} = {data}" for name, data in named if data)])


def _instructions(code: CodeType) -> str:
    constants = [
        _instructions(value) if isinstance(value, CodeType) else repr(value)
        for value in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
