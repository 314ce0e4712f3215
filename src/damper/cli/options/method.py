"""Methods and their settings as options: what they are is data, which ``damper.cli.method_help`` writes."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Annotated, Any

from damper.cli.options import DESCRIBED, LEFT_OUT, SCHEDULES, Schedules, default

_TYPES: dict[str, tuple[Any, Any]] = {
    "numbers": (Schedules, LEFT_OUT),
    "word": (str | None, None),
    "switch": (bool | None, None),
}

METHOD_LIST = "\n".join(
    [
        "How to make it smooth. A rule's primary gradient is the actor's own, its auxiliary the temporal loss's.",
        *(f"{name}: {words}" for name, words in DESCRIBED["methods"].items()),
        "Parts of several are joined as in damper+grad-caps+pave.",
    ]
)


def _option(kind: str, help: str, default_words: str) -> tuple[Any, Any]:
    """An option's type and default."""
    type, left_out = _TYPES[kind]
    return Annotated[type, default(default_words, help=help)], field(default=left_out)


MethodOptions = make_dataclass(
    "MethodOptions",
    [(name, *_option(one["kind"], one["help"], one["default"])) for name, one in DESCRIBED["settings"].items()],
)
METHOD_SETTINGS = f"Settings of the method; {SCHEDULES} follow the run's progress."
