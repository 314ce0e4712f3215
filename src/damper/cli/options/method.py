"""Methods and their settings as options: what they are is data, which ``damper.cli.method_help`` writes."""

from __future__ import annotations

import json
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from damper.cli.options import Schedules, default

FILE = Path(__file__).with_name("methods.json")
_TYPES: dict[str, tuple[Any, Any]] = {
    "numbers": (Schedules, ()),
    "word": (str | None, None),
    "switch": (bool | None, None),
}
_KNOWN = json.loads(FILE.read_text(encoding="utf-8"))

METHOD_LIST = "\n".join(
    [
        "How to make it smooth. A rule's primary gradient is the actor's own, its auxiliary the temporal loss's.",
        *(f"{name}: {words}" for name, words in _KNOWN["methods"].items()),
        "Parts of several are joined as in damper+grad-caps+pave.",
    ]
)


def _option(kind: str, help: str, default_words: str) -> tuple[Any, Any]:
    """An option's type and default."""
    type, left_out = _TYPES[kind]
    return Annotated[type, default(default_words, help=help)], field(default=left_out)


MethodOptions = make_dataclass(
    "MethodOptions",
    [(name, *_option(one["kind"], one["help"], one["default"])) for name, one in _KNOWN["settings"].items()],
)
MethodOptions.__doc__ = "Settings of the method. Several values train an agent each."
