"""An update stays short to read: functions passed, depth of calls, one way into its kernels."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import damper
from damper.engine.update.learner import Learner
from tests.engine import small

PACKAGE = str(Path(damper.__file__).parent)
MOST_FUNCTIONS, DEEPEST = 60, 12


def calls_of_an_update(learner: Learner) -> dict[tuple[str, str], int]:
    """Functions of the package by file and name, each with the depth of its deepest call.

    ``learner.update()`` has depth 1. Only frames of the package count; comprehensions and lambdas
    are no functions, but their frames count.
    """
    calls: dict[tuple[str, str], int] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        depth, above = 0, frame
        while above is not None:
            depth += above.f_code.co_filename.startswith(PACKAGE)
            above = above.f_back
        key = (code.co_filename, code.co_qualname)
        calls[key] = max(depth, calls.get(key, 0))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        learner.update()
    finally:
        sys.setprofile(before)
    return calls


def test_an_eager_update_is_short_to_follow() -> None:
    learner = small.learner(small.settings("td3", "damper"))
    for _ in range(3):
        learner.update()  # the next one, the fourth, has the actors' step too
    calls = calls_of_an_update(learner)
    functions = [name for _, name in calls if not name.endswith(">")]
    assert "Population.step_actor" in functions and "_temporal" in functions
    assert len(functions) <= MOST_FUNCTIONS, sorted(functions)
    assert max(calls.values()) <= DEEPEST, max(calls, key=lambda call: calls[call])


def test_kernels_and_tapes_are_entered_by_one_name() -> None:
    imports: set[str] = set()
    for path in Path(PACKAGE).rglob("*.py"):
        if path.parent.name != "fused":
            text = path.read_text(encoding="utf-8")
            imports |= set(re.findall(r"^ *(?:from|import) damper\.engine\.fused.*$", text, re.M))
    assert imports == {"from damper.engine.fused import Fused"}
