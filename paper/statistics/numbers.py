"""Numbers as the tables and texts write them."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

from damper.intervals import Interval


def minus(text: str) -> str:
    """A number's text with a minus sign in the place of a hyphen."""
    return text.replace("-", "−")


def number(value: float, measure: str, like: float | None = None) -> str:
    """A value as the paper writes it: returns by their size, a spread by that of its mean."""
    if isnan(value):
        return "–"
    if measure in ("return", "length"):
        size = abs(value if like is None else like)
        form = "{:z.0f}" if size >= 1000 else "{:z.1f}" if size >= 20 else "{:z.2f}"
    else:
        form = "{:z.3f}" if measure == "sm" else "{:z.4f}"
    return minus(form.format(value))


def with_interval(value: float, interval: Interval | None, measure: str) -> str:
    """A measure's value, and below it the bounds of its interval, if there is one."""
    if interval is None:
        return number(value, measure)
    low, high = (number(bound, measure, value) for bound in interval)
    return f"{number(value, measure)}<br><small>{low} to {high}</small>"


def four_digits(value: float) -> str:
    """Four significant digits; what is left of zero by rounding is zero."""
    return minus(
        f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) > 1e-12 else "0"
    )


def with_bounds(
    value: float, interval: Interval, form: Callable[[float], str] = four_digits
) -> str:
    """A value with its bounds, four digits each, or as ``form`` writes them."""
    return f"{form(value)} [{form(interval.low)}, {form(interval.high)}]"
