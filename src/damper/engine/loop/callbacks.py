"""Users' callbacks: what they see of a run under way (``Training``), and how the loop calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from damper.engine.run.folder import Run
from damper.engine.run.policy import Policy
from damper.errors import DamperError


@dataclass(frozen=True)
class Training:
    """A run in progress, at the time when a line of its metrics is written.

    Attributes:
        run: its folder.
        step: environment steps that every agent has taken.
        metrics: the line, as ``metrics.jsonl`` has it: values per agent, None where there is none.
        agents: one row per agent: its seed, and what differs between agents.
        evaluation: the newest evaluation's line, as ``evaluations.jsonl`` has it; None before the first.
    """

    run: Run
    step: int
    metrics: dict[str, Any]
    agents: list[dict[str, Any]]
    evaluation: dict[str, Any] | None
    _policies: Callable[[], list[Policy]] = field(repr=False)
    _freeze: Callable[[int], None] = field(repr=False)

    def policies(self) -> list[Policy]:
        """Every agent's policy as it is now."""
        return self._policies()

    def policy(self, agent: int = 0) -> Policy:
        """One agent's policy as it is now."""
        return self.policies()[self._checked(agent)]

    def freeze(self, agent: int) -> None:
        """Stop training an agent: it keeps its weights until the end of the run, and the others continue."""
        self._freeze(self._checked(agent))

    def _checked(self, agent: int) -> int:
        if agent not in range(len(self.agents)):
            raise DamperError(f"agent must be 0 to {len(self.agents) - 1}, but {agent!r} was given.")
        return agent


Callback = Callable[[Training], bool | None]


def as_callbacks(given: Callback | Sequence[Callback] | None) -> tuple[Callback, ...]:
    """One callback or several as a tuple; anything else is refused."""
    several = tuple(given or ()) if given is None or isinstance(given, Sequence) else (given,)
    for callback in several:
        if not callable(callback):
            raise DamperError(
                f"callbacks must be functions that take a damper.Training, but {callback!r} was given: leave it out."
            )
    return several


class Callbacks:
    """A run's callbacks, and what they asked for.

    ``stop`` tells that one returned False or raised ``error``; ``frozen`` which agents learn no more, and since which
    step.
    """

    def __init__(self, functions: tuple[Callback, ...] = ()) -> None:
        """Nothing was asked for yet."""
        self.functions, self.stop = functions, False
        self.error: Exception | None = None
        self.frozen: dict[int, int] = {}

    def __call__(self, training: Training) -> None:
        """Call each; the first error ends that, to be raised when everything is saved."""
        try:
            for function in self.functions:
                self.stop |= function(training) is False
        except Exception as error:
            self.stop, self.error = True, error

    def finish(self) -> None:
        """Raise what a callback raised."""
        if self.error is not None:
            raise self.error
