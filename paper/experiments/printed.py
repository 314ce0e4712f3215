"""The paper's printed numbers and claims, read from ``printed.json`` beside this file."""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any, NamedTuple


class Printed(NamedTuple):
    """A cell as the paper prints it."""

    mean: float
    std: float


@functools.cache
def paper() -> dict[str, Any]:
    """Everything in ``printed.json``."""
    text = files("paper.experiments").joinpath("printed.json").read_text(encoding="utf-8")
    return json.loads(text)


def printed(backbone: str, method: str, task: str, measure: str) -> Printed | None:
    """The paper's "return" or "sm" at a method's published settings; None where it prints none."""
    content, key = paper(), {"return": "re", "sm": "sm"}.get(measure)
    tables = [content[backbone]]
    if backbone == "td3":
        tables += [content["projection_ablation_td3"], {"PEGrad": content["pegrad_td3"]}]
    for table in tables:
        for title, row in table.items():
            if content["method_ids"][title] == method and task in row and key in row[task]:
                return Printed(*row[task][key])
    return None


def title(method: str, backbone: str | None = None) -> str:
    """A method's name as the paper writes it; the plain method is named after its backbone."""
    if method == "plain":
        return backbone.upper() if backbone else "Unregularized"
    names = {method_id: title for title, method_id in paper()["method_ids"].items()}
    return str(names.get(method, method))
