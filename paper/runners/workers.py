"""Several populations at once on this machine, one process each: one seldom fills a GPU."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import FrameType

import torch

from damper.engine.device.cores import usable_cores
from damper.engine.device.multi_process_service import multi_process_service
from damper.engine.device.transfers import sleep_while_waiting
from damper.errors import DamperError
from damper.terminal import say
from paper.experiments.population_plan import Job
from paper.experiments.store import Record, Store
from paper.runners.in_process import run_here, run_job
from paper.runners.outcomes import StopPopulations, keep_records

# Eight to eleven populations fill an H200: more of them did not raise its total of agents' steps
# per second.
MOST_ON_A_GPU = 10
AGENT_STEPS_PER_SECOND = 57_000
# EnvPool's threads of all populations together, per core: a population's threads sleep while it
# acts and learns.
ENV_THREADS_PER_CORE = 1.5


def run_jobs(
    jobs: Sequence[tuple[Job, Path]],
    store: Store,
    command: str,
    progress: bool = True,
    workers: int | None = None,
) -> None:
    """Run jobs in ``workers`` processes, by default ``fitting_workers``; a single one is this."""
    count = fitting_workers([job for job, _ in jobs]) if workers is None else workers
    if count == 1:
        run_here(jobs, store, command, progress)
    else:
        run_in_workers(jobs, store, command, progress, count)


def fitting_workers(jobs: Sequence[Job], cores: int | None = None) -> int:
    """Number of workers that suit a machine with so many cores: on a GPU one per population."""
    cores = usable_cores() if cores is None else cores
    return max(1, min(len(jobs), MOST_ON_A_GPU, cores // 2)) if uses_gpu(jobs) else 1


def uses_gpu(jobs: Sequence[Job]) -> bool:
    """Whether any of the jobs trains on a GPU."""
    return any(job.settings.device != "cpu" for job in jobs)


def _with_env_threads(job: Job, agents_at_once: int) -> Job:
    """Give the job its agents' share of the threads for EnvPool."""
    if job.settings.backend != "envpool" or job.settings.env_threads is not None:
        return job
    share = len(job.wanted) / agents_at_once
    threads = math.ceil(ENV_THREADS_PER_CORE * usable_cores() * share)
    return replace(job, settings=replace(job.settings, env_threads=threads))


def run_in_workers(
    jobs: Sequence[tuple[Job, Path]],
    store: Store,
    command: str,
    progress: bool = True,
    workers: int = 2,
) -> None:
    """Run jobs in ``workers`` processes, the longest first; failures are raised at the end.

    A GPU is shared through CUDA's multi-process service, so that kernels of several run at once.
    """
    if workers < 1:
        raise DamperError(f"workers must be at least 1, but {workers} was given.")
    longest_first = sorted(jobs, key=lambda job: -job[0].settings.steps * len(job[0].wanted))
    threads = max(1, usable_cores() // workers)
    agents_at_once = sum(sorted((len(job.wanted) for job, _ in jobs), reverse=True)[:workers])
    pool = ThreadPoolExecutor(workers)
    on_gpu = uses_gpu([job for job, _ in jobs])
    try:
        with _StopWorkers(), multi_process_service(on_gpu) as shared:
            if on_gpu and not shared and progress:
                cause = "nvidia-cuda-mps-control cannot be started here"
                say(f"{cause}, so the processes take turns on the GPU.", "yellow")
            waiting = {}
            for job, folder in longest_first:
                what = (_with_env_threads(job, agents_at_once), folder, command, threads)
                waiting[pool.submit(_run_in_own_process, *what)] = job
            ended = ((waiting[done], done.result) for done in as_completed(waiting))
            keep_records(ended, store, len(jobs), progress)
    finally:
        pool.shutdown(cancel_futures=True)


class _StopWorkers(StopPopulations):
    """Passes a signal on to the workers."""

    def receive(self, number: int, frame: FrameType | None) -> None:
        for process in multiprocessing.active_children():
            process.terminate()
        super().receive(number, frame)


def _prepare(threads: int) -> None:
    """Set up a worker to share the cores and to ignore Ctrl-C."""
    torch.set_num_threads(threads)
    sleep_while_waiting()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_in_own_process(job: Job, folder: Path, command: str, threads: int) -> list[Record] | None:
    """``run_job`` in a separate process, so that a crash ends no other population."""
    # A fresh interpreter: a forked one would inherit a CUDA context that it cannot use.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=_prepare, initargs=(threads,)) as process:
        try:
            return process.submit(run_job, job, folder, command, False).result()
        except BrokenProcessPool as error:
            raise DamperError(
                "its process was killed, probably because memory ran out: use fewer workers or a "
                "smaller population; the same command resumes it."
            ) from error
        except KeyboardInterrupt as error:  # of a signal to that process, not to this thread
            raise DamperError("its process was stopped; the same command resumes it.") from error
