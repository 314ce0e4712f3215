"""What a user's mistake raises."""

from __future__ import annotations


class DamperError(ValueError):
    """A mistake in the input, told in one sentence: which setting, what it must be, what was given, the likely fix."""


class MissingExtraError(DamperError, ImportError):
    """A package is not installed that an optional part needs; the sentence names the extra that brings it."""
