"""Populations side by side in processes of this machine: one GPU is seldom full with one, two cores seldom with either.

On an NVIDIA GPU start CUDA's multi-process service first (``nvidia-cuda-mps-control -d``): without it the processes
take turns on the device, with it their kernels run at once.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

import torch
from rich.console import Console

from damper.errors import DamperError
from damper.experiments.packing import Job
from damper.experiments.runner import run_job
from damper.experiments.store import Record, Store


def run_in_workers(
    jobs: Sequence[tuple[Job, Path]], store: Store, command: str, progress: bool = True, workers: int = 2
) -> None:
    """Run jobs in so many processes, the longest first, and keep each one's records as it ends.

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
    failed: list[DamperError] = []
    # Fresh interpreters: a forked one would inherit a CUDA context that it cannot use.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        waiting = {pool.submit(run_job, job, folder, command, False): job for job, folder in longest_first}
        for count, done in enumerate(as_completed(waiting), 1):
            job = waiting[done]
            try:
                _keep(done, store)
            except DamperError as error:
                failed.append(error)
            if progress:
                settings, said = job.settings, "failed" if done.exception() else "is done"
                words = f"{settings.env_id} {settings.backbone} {settings.method} ×{len(job.wanted)} {said}"
                Console().print(f"{words}; {len(jobs) - count} populations to go", highlight=False)
    if failed:
        more = f" ({len(failed) - 1} other populations failed too)" if len(failed) > 1 else ""
        raise DamperError(f"{failed[0]}{more}")


def _keep(done: Future[list[Record] | None], store: Store) -> None:
    for record in done.result() or ():
        store.add(record)
