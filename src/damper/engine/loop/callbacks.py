"""Users' callbacks: what they see of a run (``Training``), and how the loop calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from damper.engine.run.folder import Run
from damper.errors import DamperError
from damper.policies.policy import Policy


@dataclass(frozen=True)
class Training:
    """A run in progress, passed to callbacks whenever a line of its metrics is written.

    Attributes:
        run: the run's folder.
        step: environment steps that every agent has taken.
        metrics: the line, as in ``metrics.jsonl``: values per agent, None where there is none.
        agents: one row per agent: its seed, and its value of every setting in which agents differ.
        evaluation: the latest evaluation's line, as in ``evaluations.jsonl``, or None.
    """

    run: Run
    step: int
    metrics: dict[str, Any]
    agents: list[dict[str, Any]]
    evaluation: dict[str, Any] | None
    _policies: Callable[[], list[Policy]] = field(repr=False)
    _freeze: Callable[[int], None] = field(repr=False)

    def policies(self) -> list[Policy]:
        """Each agent's current policy."""
        return self._policies()

    def policy(self, agent: int = 0) -> Policy:
        """One agent's current policy."""
        return self.policies()[self._checked(agent)]

    def freeze(self, agent: int) -> None:
        """Stop training an agent: it keeps its weights from here on; the others continue."""
        self._freeze(self._checked(agent))

    def _checked(self, agent: int) -> int:
        if agent not in range(len(self.agents)):
            last = len(self.agents) - 1
            raise DamperError(f"agent must be 0 to {last}, but {agent!r} was given.")
        return agent


Callback = Callable[[Training], bool | None]


def as_callbacks(given: Callback | Sequence[Callback] | None) -> tuple[Callback, ...]:
    """Turn one callback or several into a tuple; raise for anything else."""
    several = tuple(given or ()) if given is None or isinstance(given, Sequence) else (given,)
    for callback in several:
        if not callable(callback):
            raise DamperError(
                f"callbacks must be functions that take a damper.Training, but {callback!r} was "
                "given: leave it out."
            )
    return several


class Callbacks:
    """A run's callbacks, and what they asked for.

    ``stop`` is True after one returned False or raised ``error``; ``frozen`` maps frozen agents to
    the step at which they were frozen.
    """

    def __init__(self, functions: tuple[Callback, ...] = ()) -> None:
        self.functions, self.stop = functions, False
        self.error: Exception | None = None
        self.frozen: dict[int, int] = {}

    def __call__(self, training: Training) -> None:
        """Call each callback; an error skips the rest, and is raised once everything is saved."""
        try:
            for function in self.functions:
                self.stop |= function(training) is False
        except Exception as error:
            self.stop, self.error = True, error
