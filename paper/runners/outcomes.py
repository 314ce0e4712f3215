"""Store the records of several populations as each one ends, raise failures when all are done."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, TracebackType

from damper.engine.run.stop import Stopped, StopSignals
from damper.errors import DamperError
from damper.terminal import counted, say
from paper.experiments.population_plan import Job
from paper.experiments.store import Record, Store

Failed = tuple[Job, Exception]
Result = Callable[[], list[Record] | None]


class StopPopulations(StopSignals):
    """Stops what waits inside its ``with`` block at a signal, and says how to go on."""

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the wait."""
        super().receive(number, frame)
        raise KeyboardInterrupt  # Ray would replace an error with a message by this one

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if self.received is not None:
            raise Stopped(
                "stopped; the same command resumes what was started.", self.received
            ) from None


def keep_records(
    outcomes: Iterable[tuple[Job, Result]], store: Store, count: int, progress: bool = True
) -> None:
    """Store the records of ``count`` populations as each ends; failures are raised at the end.

    Each outcome has a function that returns its records, or None if it is trained elsewhere.
    """
    failed: list[Failed] = []
    for left, (job, result) in zip(range(count - 1, -1, -1), outcomes, strict=True):
        try:
            records = result()
            for record in records or ():
                store.add(record)
            said = "is being trained by another process" if records is None else "is done"
        except Exception as error:
            _clear_frames(error)
            failed.append((job, error))
            said = "failed"
        if progress:
            say(f"{job_title(job)} {said}; {counted(left, 'population')} to go")
    if failed:
        raise combined_error(failed)


def combined_error(failed: Sequence[Failed]) -> Exception:
    """One error for all failures; a sentence if all are users' mistakes."""
    first, mistake = failed[0][0], _mistake(failed[0][1])
    if mistake is not None and all(_mistake(error) for _, error in failed):
        others = ", ".join(job_title(job) for job, _ in failed[1:])
        also = f" (Also failed: {others}.)" if others else ""
        return DamperError(f"{job_title(first)}: {mistake}{also}")
    kept = "What the others finished is kept; the same command resumes it."
    for job, error in failed:
        error.add_note(f"{job_title(job)} failed. {kept}")
    errors = [error for _, error in failed]
    if len(errors) == 1:
        return errors[0]
    return ExceptionGroup(f"{len(errors)} populations failed", errors)


def job_title(job: Job) -> str:
    """A population's environment, backbone, methods and size, for messages."""
    methods = ", ".join(dict.fromkeys(agent.settings.method for agent in job.wanted))
    return f"{job.settings.env_id} {job.settings.backbone} {methods} ×{len(job.wanted)}"


def _mistake(error: Exception) -> DamperError | None:
    """The ``DamperError``, unwrapped from Ray's error with the remote traceback."""
    candidates = (getattr(error, "cause", None), error)
    return next((e for e in candidates if isinstance(e, DamperError)), None)


def _clear_frames(error: BaseException | None) -> None:
    """Free the local variables that a traceback holds: the next population needs the memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
