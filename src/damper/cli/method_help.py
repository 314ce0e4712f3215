"""Help texts of methods, their settings and activations: ``python -m damper.cli.method_help`` writes them to a file.

They are collected from docstrings into ``cli/options/methods.json``, so that ``--help`` need not
import torch. A test fails when the file is out of date.
"""

from __future__ import annotations

import inspect
import itertools
import re
from operator import itemgetter
from typing import Any

from damper.cli.options.training import METHODS_JSON
from damper.engine.run.files import write_json
from damper.methods import METHODS, Method
from damper.presets import preset
from damper.tasks import PAPER_TASKS

KINDS = {bool: "switch", str: "word"}  # by a default's type; all others are numbers


def help_texts() -> dict[str, Any]:
    """One line per method; kind, help and default of every setting."""
    lines = {name: _one_line(name, method) for name, method in METHODS.items()}
    return {"methods": lines, "settings": dict(sorted(_settings().items()))}


def _one_line(name: str, method: Method) -> str:
    """A method's summary, without its name where the summary starts with it."""
    first, _, words = method.summary.partition(": ")
    return words if first.lower().replace(" ", "-") == name else method.summary


def _settings() -> dict[str, dict[str, str]]:
    """Every setting of any method: its meaning, the methods that take it, and their defaults."""
    owners: dict[str, dict[str, Any]] = {}
    for name, method in METHODS.items():
        for setting, value in (method.settings() | preset(name, None, "td3")).items():
            if value is not None:
                owners.setdefault(setting, {})[name] = value
    found = {setting: _setting(setting, values) for setting, values in owners.items()}
    for setting in {name for method in METHODS.values() for name in method.parts()["critic"]}:
        if len(set(owners[setting].values())) > 1:
            words = f"The critic loss's own {setting}, where a composed method has two."
            found[f"critic_{setting}"] = found[setting] | {"help": words, "default": "its method's"}
    return found


def _setting(setting: str, values: dict[str, Any]) -> dict[str, str]:
    """Kind, help and default of a setting; ``values`` are the methods' defaults, all shown where they differ."""
    every = [name for name, method in METHODS.items() if method.losses]
    rules = [name for name in every if METHODS[name].rule]
    of = (
        "every method"
        if list(values) == every
        else "every rule"
        if list(values) == rules
        else ", ".join(values)
    )
    differing = (
        dict(sorted(values.items()))
        if len(set(values.values())) > 1
        else {"": next(iter(values.values()))}
    )
    shown = ", ".join(f"{_plain(value)} {name}".strip() for name, value in differing.items())
    shown = f"{shown}, the paper's for its tasks" if _has_published(setting, values) else shown
    words = _meaning({name: _description(METHODS[name], setting) for name in values})
    kind = KINDS.get(type(next(iter(values.values()))), "numbers")
    return {"kind": kind, "help": f"{words} Taken by {of}.".strip(), "default": shown}


def _meaning(descriptions: dict[str, str]) -> str:
    """A setting's meaning; where methods describe it differently, each description with its methods."""
    owners: dict[str, list[str]] = {}
    for name, words in filter(itemgetter(1), descriptions.items()):
        known = next(
            (longer for longer in owners if longer.startswith(words.removesuffix("."))), words
        )
        owners.setdefault(known, []).append(name)
    if len(owners) < 2:
        return next(iter(owners), "")
    return (
        "; ".join(
            f"{words.removesuffix('.')} ({', '.join(names)})" for words, names in owners.items()
        )
        + "."
    )


def _has_published(setting: str, values: dict[str, Any]) -> bool:
    """Whether the paper has another value than the default for any of its tasks."""
    cases = itertools.product(values, PAPER_TASKS, ("td3", "sac"))
    return any(preset(*case).get(setting, values[case[0]]) != values[case[0]] for case in cases)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _description(method: Method, setting: str) -> str:
    """The description of a setting in the docstring of one of the method's functions."""
    for function in method.functions.values():
        found = re.search(
            rf"^ +{setting}: (.+?)(?=\n +\w+: |\n\n|\Z)",
            inspect.getdoc(function) or "",
            re.S | re.M,
        )
        if found:
            words = " ".join(found[1].replace("``", "").split()).replace(", likewise", "")
            return re.sub(
                r"[.,:] a float,? or a tensor that broadcasts over the leading axes",
                "",
                words,
                flags=re.I,
            )
    return ""


if __name__ == "__main__":
    write_json(METHODS_JSON, help_texts())
