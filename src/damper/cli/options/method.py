"""The settings of every method as options: taken from the methods themselves, so that this alone imports torch."""

from __future__ import annotations

import inspect
import itertools
import re
from dataclasses import field, make_dataclass
from typing import Annotated, Any

from damper.cli.options import Numbers, default
from damper.methods import METHODS, Method
from damper.presets import preset
from damper.tasks import TASKS


def _one_line(name: str, method: Method) -> str:
    """What a method does, without its name where that stands before it already."""
    first, _, words = method.summary.partition(": ")
    return words if first.lower().replace(" ", "-") == name else method.summary


METHOD_LIST = "\n".join(
    [
        "How to make it smooth. A rule's primary gradient is the actor's own, its auxiliary the temporal loss's.",
        *(f"{name}: {_one_line(name, method)}" for name, method in METHODS.items()),
        "Parts of several are joined as in damper+grad-caps+pave.",
    ]
)


def _method_fields() -> list[tuple[str, Any, Any]]:
    """One option per setting of any method: what it is, the methods that take it, their defaults."""
    owners: dict[str, dict[str, Any]] = {}
    for name, method in METHODS.items():
        for setting, value in (method.settings() | preset(name, None, "td3")).items():
            if value is not None:
                owners.setdefault(setting, {})[name] = value
    options = [(setting, *_option(setting, values)) for setting, values in owners.items()]
    for setting in {name for method in METHODS.values() for name in method.parts()["critic"]}:
        if len(set(owners[setting].values())) > 1:
            words = f"The critic loss's own {setting}, where a composed method has two."
            options.append((f"critic_{setting}", *_typed(next(iter(owners[setting].values())), words, "its method's")))
    return sorted(options, key=lambda option: option[0])


def _option(setting: str, values: dict[str, Any]) -> tuple[Any, Any]:
    """A setting's option; its default is one value, or one per method where they differ."""
    every = [name for name, method in METHODS.items() if method.losses]
    rules = [name for name in every if METHODS[name].rule]
    of = "every method" if list(values) == every else "every rule" if list(values) == rules else ", ".join(values)
    differing = dict(sorted(values.items())) if len(set(values.values())) > 1 else {"": next(iter(values.values()))}
    shown = ", ".join(f"{_plain(value)} {name}".strip() for name, value in differing.items())
    shown = f"{shown}, the paper's for its tasks" if _has_published(setting, values) else shown
    words = next(filter(None, (_description(METHODS[name], setting) for name in values)), "")
    return _typed(next(iter(values.values())), f"{words} Taken by {of}.".strip(), shown)


def _typed(value: Any, words: str, left_out: str) -> tuple[Any, Any]:
    """An option's type and default: lists of numbers, single words and switches."""
    kind: Any = {bool: bool | None, str: str | None}.get(type(value), Numbers)
    return Annotated[kind, default(left_out, help=words)], field(default=() if kind is Numbers else None)


def _has_published(setting: str, values: dict[str, Any]) -> bool:
    """Whether a task of the paper has another value than the default."""
    cases = itertools.product(values, TASKS, ("td3", "sac"))
    return any(preset(*case).get(setting, values[case[0]]) != values[case[0]] for case in cases)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _description(method: Method, setting: str) -> str:
    """What the docstring of one of its functions says of a setting."""
    for function in method.functions.values():
        found = re.search(rf"^ +{setting}: (.+?)(?=\n +\w+: |\n\n|\Z)", inspect.getdoc(function) or "", re.S | re.M)
        if found:
            words = " ".join(found[1].replace("``", "").split())
            return re.sub(r"[.,:] a float,? or a tensor that broadcasts over the leading axes", "", words, flags=re.I)
    return ""


MethodOptions = make_dataclass("MethodOptions", _method_fields())
MethodOptions.__doc__ = "Settings of the method. Several values train an agent each."
