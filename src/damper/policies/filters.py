"""Filters of the executed action, the usual remedy for a shaking policy: a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from damper.errors import DamperError

Actions = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LowPass:
    """First-order low-pass ``u_t = u_{t−1} + α (a_t − u_{t−1})``, α in (0, 1]; 1 passes all."""

    alpha: float

    def __post_init__(self) -> None:
        if not (isinstance(self.alpha, Real) and 0.0 < self.alpha <= 1.0):
            raise DamperError(
                f"alpha must be in (0, 1], but {self.alpha!r} was given: 1 does not filter at all."
            )

    def __call__(self, action: Actions, previous: Actions, span: Actions) -> Actions:
        """The executed action, given the one executed before."""
        return previous + self.alpha * (action - previous)


@dataclass(frozen=True)
class SlewRate:
    """Slew-rate limit ``u_t = u_{t−1} + clip(a_t − u_{t−1}, ±limit · (high − low))``."""

    limit: float

    def __post_init__(self) -> None:
        if not (isinstance(self.limit, Real) and self.limit > 0.0):
            raise DamperError(
                f"limit must be above 0, a share of the action range per step, but {self.limit!r} "
                "was given."
            )

    def __call__(self, action: Actions, previous: Actions, span: Actions) -> Actions:
        """The executed action, given the one executed before."""
        return previous + np.clip(action - previous, -self.limit * span, self.limit * span)


Filter = LowPass | SlewRate


def parse_filter(text: str) -> Filter:
    """Parse ``low-pass:0.3`` or ``slew-rate:0.1``."""
    kinds: dict[str, type[Filter]] = {"low-pass": LowPass, "slew-rate": SlewRate}
    try:
        kind, _, number = text.partition(":")
        return kinds[kind](float(number))
    except DamperError:
        raise
    except (AttributeError, KeyError, ValueError) as error:
        raise DamperError(
            f"filter must read low-pass:ALPHA or slew-rate:LIMIT, but {text!r} was given."
        ) from error
