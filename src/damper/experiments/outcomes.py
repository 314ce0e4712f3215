"""What becomes of each population: its records are kept as it ends, and a failure is told when the others are done."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from damper.errors import DamperError
from damper.experiments.population_plan import Job
from damper.experiments.store import Record, Store
from damper.terminal import counted, say

Failed = tuple[Job, Exception]


class Outcomes:
    """Keeps records and collects failures; leaving its ``with`` block raises what failed.

    Args:
        store: where records go.
        populations: how many there are.
        progress: say how each one ended.
    """

    def __init__(self, store: Store, populations: int, progress: bool = True) -> None:
        self.store, self.left, self.progress = store, populations, progress
        self.failed: list[Failed] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.failed:
            raise explained(self.failed)

    def take(self, job: Job, records: Callable[[], list[Record] | None]) -> None:
        """Keep a population's records, or its failure.

        Args:
            job: the population.
            records: gives its records (None if another process is at it), or raises.
        """
        try:
            found = records()
            for record in found or ():
                self.store.add(record)
            said = "is being trained by another process" if found is None else "is done"
        except Exception as error:
            _let_go(error)
            self.failed.append((job, error))
            said = "failed"
        self.left -= 1
        if self.progress:
            say(f"{called(job)} {said}; {counted(self.left, 'population')} to go")


def explained(failed: Sequence[Failed]) -> Exception:
    """One error for all that failed: users' mistakes in a sentence, anything else as it is, with a note of where."""
    first, mistake = failed[0][0], _mistake(failed[0][1])
    if mistake is not None and all(_mistake(error) for _, error in failed):
        others = ", ".join(called(job) for job, _ in failed[1:])
        return DamperError(f"{called(first)}: {mistake}" + (f" (Failed too: {others}.)" if others else ""))
    for job, error in failed:
        error.add_note(f"{called(job)} failed. What the others finished is kept; the same command goes on with it.")
    errors = [error for _, error in failed]
    return errors[0] if len(errors) == 1 else ExceptionGroup(f"{len(errors)} populations failed", errors)


def called(job: Job) -> str:
    """A population in words."""
    methods = ", ".join(dict.fromkeys(agent.settings.method for agent in job.wanted))
    return f"{job.settings.env_id} {job.settings.backbone} {methods} ×{len(job.wanted)}"


def _mistake(error: Exception) -> DamperError | None:
    """A user's mistake, which Ray wraps into one of the same type that tells a long story; None for anything else."""
    return next((e for e in (getattr(error, "cause", None), error) if isinstance(e, DamperError)), None)


def _let_go(error: BaseException | None) -> None:
    """Free what the frames of a failure hold: the next population needs the memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
