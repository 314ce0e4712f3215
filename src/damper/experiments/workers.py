"""Populations side by side in processes of this machine: one GPU is seldom full with one, two cores seldom with either.

On an NVIDIA GPU start CUDA's multi-process service first (``nvidia-cuda-mps-control -d``): without it the processes
take turns on the device, with it their kernels run at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import FrameType

import torch

from damper.engine.run.stop import Stopped, StopSignals
from damper.errors import DamperError
from damper.experiments.outcomes import Outcomes
from damper.experiments.population_plan import Job
from damper.experiments.runner import run_job
from damper.experiments.store import Record, Store


def run_in_workers(
    jobs: Sequence[tuple[Job, Path]], store: Store, command: str, progress: bool = True, workers: int = 2
) -> None:
    """Run jobs in so many processes, the longest first, and keep each one's records as it ends.

    What fails is told when the others are done.

    Args:
        jobs: populations with their folders.
        store: where records go.
        command: what the records say made them.
        progress: say when a population ends.
        workers: how many processes; each computes with its share of the processor cores.
    """
    if workers < 1:
        raise DamperError(f"workers must be at least 1, but {workers} was given.")
    longest_first = sorted(jobs, key=lambda job: -job[0].settings.steps * len(job[0].wanted))
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ThreadPoolExecutor(workers)
    try:
        with _StopWorkers(), Outcomes(store, len(jobs), progress) as outcomes:
            waiting = {pool.submit(_run_apart, job, folder, command, threads): job for job, folder in longest_first}
            for done in as_completed(waiting):
                outcomes.take(waiting[done], done.result)
    finally:
        pool.shutdown(cancel_futures=True)


class _StopWorkers(StopSignals):
    """Hands a signal on, so that every population stops with everything saved and no new one begins."""

    def receive(self, number: int, frame: FrameType | None) -> None:
        super().receive(number, frame)
        for process in multiprocessing.active_children():
            process.terminate()
        raise Stopped("stopped; the same command goes on with what was begun.", number)


def _prepare(threads: int) -> None:
    """Set a worker up; Ctrl-C reaches it through the process that started it."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_apart(job: Job, folder: Path, command: str, threads: int) -> list[Record] | None:
    """``run_job`` in a process of its own: whatever kills it takes no other population with it."""
    # A fresh interpreter: a forked one would inherit a CUDA context that it cannot use.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=_prepare, initargs=(threads,)) as process:
        try:
            return process.submit(run_job, job, folder, command, False).result()
        except BrokenProcessPool as error:
            raise DamperError(
                "its process was killed, as the system does when memory runs out: with fewer workers or a smaller "
                "population it needs less, and the same command goes on with it."
            ) from error
        except KeyboardInterrupt as error:  # of that process, by a signal: this thread gets none
            raise DamperError("its process was stopped; the same command goes on with it.") from error
