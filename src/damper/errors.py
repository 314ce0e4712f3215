"""What a user's mistake raises, and the suggestion for a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DamperError(ValueError):
    """A mistake in the input, told in one sentence: which setting, what it must be, what was given, the likely fix."""


class MissingExtraError(DamperError, ImportError):
    """A package is not installed that an optional part needs; the sentence names the extra that brings it."""


def did_you_mean(name: object, known: Iterable[str], otherwise: str) -> str:
    """The likely fix for an unknown name: the closest known one, or ``otherwise``."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise
