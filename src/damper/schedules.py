"""Settings that change during a run: functions of ``progress_remaining``, as in SB3."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from damper.errors import DamperError

# Where a function is evaluated, to check and to identify it.
POINTS = tuple(1.0 - i / 1000 for i in range(1001))


class Schedule(str):
    """A number as a function of ``progress_remaining``, which goes from 1 to 0 as in SB3.

    As a string it identifies itself in records: ``linear:0.0003:0``, or a function's name with a
    digest of its values.
    """

    function: Callable[[float], float]

    @classmethod
    def of(cls, text: str, function: Callable[[float], float]) -> Schedule:
        """Make a schedule of a function and the text that identifies it."""
        schedule = cls(text)
        schedule.function = function
        return schedule

    def __call__(self, progress_remaining: float) -> float:
        """The value at this point of the run."""
        return float(self.function(progress_remaining))


def linear(progress_remaining: float, start: float, end: float, end_fraction: float = 1.0) -> float:
    """From ``start`` to ``end`` in the run's first ``end_fraction``: SB3's ``LinearSchedule``."""
    done = 1 - progress_remaining
    return end if done > end_fraction else start + done * (end - start) / end_fraction


def cosine(progress_remaining: float, start: float, end: float, end_fraction: float = 1.0) -> float:
    """Like ``linear``, but along half a cosine wave, level at both ends."""
    done = min((1 - progress_remaining) / end_fraction, 1)
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2


KINDS = {"linear": linear, "cosine": cosine}


def as_schedule(name: str, value: Any) -> Any:
    """A function or text such as "linear:3e-4:0" as a schedule, in a tuple too; else as given."""
    if isinstance(value, tuple):
        return tuple(as_schedule(name, element) for element in value)
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str) and value.partition(":")[0] in KINDS:
        return _parse(name, value)
    return _of_function(name, value) if callable(value) else value


def check_number(name: str, value: Any, example: str = "linear:0:1") -> None:
    """Raise for anything but a number or a schedule, mainly for text that is not a schedule."""
    if not isinstance(value, int | float | Schedule):
        raise DamperError(
            f"{name} must be a number, or a schedule such as {example}, but {value!r} was given."
        )


def value_at(value: Any, progress_remaining: float = 1.0) -> Any:
    """The value of a setting, scheduled or not, at this point of the run."""
    return value(progress_remaining) if isinstance(value, Schedule) else value


def _parse(name: str, text: str) -> Schedule:
    kind, *parts = text.split(":")
    try:
        start, end, *share = map(float, parts)
        is_finite = math.isfinite(start) and math.isfinite(end)
        if not is_finite or len(share) > 1 or not all(0 < part <= 1 for part in share):
            raise ValueError
    except ValueError as error:
        raise DamperError(
            f"{name} as a schedule must read {kind}:START:END, or {kind}:START:END:SHARE to end "
            f"after that share of the run, but {text!r} was given."
        ) from error
    numbers = dict(zip(("start", "end", "end_fraction"), (start, end, *share), strict=False))
    identity = ":".join([kind, *(f"{number:.12g}" for number in numbers.values())])
    return Schedule.of(identity, partial(KINDS[kind], **numbers))


def _of_function(name: str, function: Callable[[float], Any]) -> Schedule:
    """A function as a schedule, identified by name and values: so two lambdas are distinct."""
    try:
        values = [float(function(remaining)) for remaining in POINTS]
    except (TypeError, ValueError) as error:
        raise DamperError(
            f"{name} as a function must take progress_remaining, from 1 to 0, and return a number, "
            f"but {function!r} does not: {error}."
        ) from error
    text = " ".join(f"{value:.12g}" for value in values)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    named = function if hasattr(function, "__qualname__") else type(function)
    return Schedule.of(f"{named.__module__}:{named.__qualname__} {digest}", function)
