"""The errors that a user's mistake raises, and the suggestion for a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class DamperError(ValueError):
    """A user's mistake: which setting, what it must be, what was given, the likely fix."""


class MissingOptionError(DamperError):
    """A policy cannot be opened without ``vecnormalize`` or ``trust``; the sentence says which."""


class MissingExtraError(DamperError, ImportError):
    """An optional part's package is not installed; the sentence names the extra that has it."""


def did_you_mean(name: object, names: Iterable[str], otherwise: str) -> str:
    """The likely fix for an unknown name: the closest of ``names``, or ``otherwise``."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def wrong_env_error(env: Any) -> DamperError:
    """The error for an ``env`` that is neither an id nor a callable, such as an environment."""
    requirement = "env must be an id, or a callable that returns a new gymnasium.Env"
    if not hasattr(env, "unwrapped"):
        return DamperError(f"{requirement}, but {env!r} was given.")
    kind = type(env.unwrapped).__name__
    return DamperError(
        f"{requirement}, because every agent needs its own, but a {kind} was given: pass its "
        "class, or a function that makes it."
    )
