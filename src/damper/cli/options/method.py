"""Methods and their settings as options: what they are is data, which ``damper.cli.method_help`` writes."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Annotated, Any

from damper.cli.options import LEFT_OUT, METHOD_TEXTS, SCHEDULES, Schedules, default

_TYPES: dict[str, tuple[Any, Any]] = {
    "numbers": (Schedules, LEFT_OUT),
    "word": (str | None, None),
    "switch": (bool | None, None),
}

METHOD_LIST = "\n".join(
    [
        "Smoothing method; rules combine the actor's gradient (primary) with that of the temporal "
        "loss (auxiliary).",
        *(f"{name}: {words}" for name, words in METHOD_TEXTS["methods"].items()),
        "Combine parts of several as in damper+grad-caps+pave.",
    ]
)


def _option(kind: str, help: str, default_words: str) -> tuple[Any, Any]:
    """An option's type and default."""
    type, left_out = _TYPES[kind]
    return Annotated[type, default(default_words, help=help)], field(default=left_out)


MethodOptions = make_dataclass(
    "MethodOptions",
    [
        (name, *_option(one["kind"], one["help"], one["default"]))
        for name, one in METHOD_TEXTS["settings"].items()
    ],
)
METHOD_SETTINGS = f"Settings of the method; {SCHEDULES} follow the run's progress."
