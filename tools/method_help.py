"""Help texts of methods and their settings: ``python tools/method_help.py`` writes them.

They are collected from docstrings into ``cli/options/methods.json``, so that ``--help`` need not
import torch. A test fails when the file is out of date.
"""

from __future__ import annotations

import inspect
import itertools
import re
from typing import Any

from damper.cli.options.training import METHODS_JSON
from damper.files import write_json
from damper.methods import METHODS, Method
from damper.presets import preset
from damper.tasks import PAPER_TASKS

KINDS = {bool: "switch", str: "word"}  # by a default's type; all others are numbers
TENSOR = re.compile(r"[.,:] a float,? or a tensor that broadcasts over the leading axes", re.I)


def help_texts() -> dict[str, Any]:
    """One line per method; kind, help and default of every setting."""
    lines = {name: _one_line(name, method) for name, method in METHODS.items()}
    return {"methods": lines, "settings": dict(sorted(_settings().items()))}


def _one_line(name: str, method: Method) -> str:
    """A method's summary, without its name where the summary starts with it."""
    first, _, rest = method.summary.partition(": ")
    return rest if first.lower().replace(" ", "-") == name else method.summary


def _settings() -> dict[str, dict[str, str]]:
    """Every setting of any method: its meaning, the methods that take it, and their defaults."""
    defaults: dict[str, dict[str, Any]] = {}
    for name, method in METHODS.items():
        for setting, value in (method.settings() | preset(name, None, "td3")).items():
            if value is not None:
                defaults.setdefault(setting, {})[name] = value
    texts = {setting: _setting(setting, values) for setting, values in defaults.items()}
    for setting in {name for method in METHODS.values() for name in method.parts()["critic"]}:
        if len(set(defaults[setting].values())) > 1:
            meaning = f"The critic loss's own {setting}, where a composed method has two."
            texts[f"critic_{setting}"] = texts[setting] | {
                "help": meaning,
                "default": "its method's",
            }
    return texts


def _setting(setting: str, values: dict[str, Any]) -> dict[str, str]:
    """Kind, help and default of a setting, whose default each method has in ``values``."""
    with_loss = [name for name, method in METHODS.items() if method.losses]
    takers = ", ".join(values)
    if list(values) == with_loss:
        takers = "every method"
    elif list(values) == [name for name in with_loss if METHODS[name].rule]:
        takers = "every rule"
    if len(set(values.values())) == 1:
        default = _plain(next(iter(values.values())))
    else:
        default = ", ".join(f"{_plain(value)} {name}" for name, value in sorted(values.items()))
    if _has_published(setting, values):
        default += ", the paper's for its tasks"
    meaning = _meaning({name: _description(METHODS[name], setting) for name in values})
    kind = KINDS.get(type(next(iter(values.values()))), "numbers")
    return {"kind": kind, "help": f"{meaning} Taken by {takers}.".strip(), "default": default}


def _meaning(descriptions: dict[str, str]) -> str:
    """A setting's meaning; where methods describe it differently, each of them with its methods."""
    owners: dict[str, list[str]] = {}
    for name, text in descriptions.items():
        if text:
            start = text.removesuffix(".")
            longer = (other for other in owners if other.startswith(start))
            owners.setdefault(next(longer, text), []).append(name)
    if len(owners) < 2:
        return next(iter(owners), "")
    parts = [f"{text.removesuffix('.')} ({', '.join(names)})" for text, names in owners.items()]
    return "; ".join(parts) + "."


def _has_published(setting: str, values: dict[str, Any]) -> bool:
    """Whether the paper has another value than the default for any of its tasks."""
    cases = itertools.product(values, PAPER_TASKS, ("td3", "sac"))
    return any(preset(*case).get(setting, values[case[0]]) != values[case[0]] for case in cases)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _description(method: Method, setting: str) -> str:
    """The description of a setting in the docstring of one of the method's functions."""
    argument = re.compile(rf"^ +{setting}: (.+?)(?=\n +\w+: |\n\n|\Z)", re.S | re.M)
    for function in method.functions.values():
        if match := argument.search(inspect.getdoc(function) or ""):
            text = " ".join(match[1].replace("``", "").split()).replace(", likewise", "")
            return TENSOR.sub("", text)
    return ""


if __name__ == "__main__":
    write_json(METHODS_JSON, help_texts())
