"""The settings of every method as options: taken from the methods themselves, so that this alone imports torch."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Annotated, Any

import tyro

from damper.cli.options import Numbers
from damper.methods import METHODS


def _method_fields() -> list[tuple[str, Any, Any]]:
    """One option per setting of any method, with the methods that take it as its help."""
    takers: dict[str, list[str]] = {}
    defaults: dict[str, list[Any]] = {}
    for name, method in METHODS.items():
        known = {setting: default for setting, default in method.settings().items() if default is not None}
        for setting, default in known.items():
            takers.setdefault(setting, []).append(name)
            defaults.setdefault(setting, []).append(default)
    words = {setting: "Of " + ", ".join(names) + "." for setting, names in takers.items()}
    words |= {setting: "Of every method." for setting, names in takers.items() if len(names) == len(METHODS) - 1}
    for setting in {name for method in METHODS.values() for name in method.parts()["critic"]}:
        if any(default != defaults[setting][0] for default in defaults[setting]):
            defaults[f"critic_{setting}"] = defaults[setting]
            words[f"critic_{setting}"] = f"The critic loss's own {setting}, where a composed method has two."
    return [(setting, *_option(values[0], words[setting])) for setting, values in sorted(defaults.items())]


def _option(default: Any, words: str) -> tuple[Any, Any]:
    """An option's type and default: lists of numbers, single words and switches."""
    kind: Any = {bool: bool | None, str: str | None}.get(type(default), Numbers)
    return Annotated[kind, tyro.conf.arg(help=words)], field(default=() if kind is Numbers else None)


MethodOptions = make_dataclass("MethodOptions", _method_fields())
MethodOptions.__doc__ = (
    "Settings of the method; what is left out comes from its preset for the task. Lists make a population."
)
