"""Run populations on several machines.

Ray assigns each to a GPU or to some cores, and the records come back here.

Checkpoints are in the run's folder. If that is on storage that all machines share, a population
whose worker is lost resumes elsewhere from its last checkpoint; if not, it starts again. Records
come with the result either way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from damper.errors import DamperError, MissingExtraError
from paper.experiments.population_plan import Job
from paper.experiments.store import Record, Store
from paper.runners.in_process import run_job
from paper.runners.outcomes import Result, StopPopulations, keep_records

RETRIES = 10  # of a population whose worker or machine is lost; a user's mistake is not retried


def run_on_ray(
    jobs: Sequence[tuple[Job, Path]],
    store: Store,
    command: str,
    progress: bool = True,
    address: str = "auto",
    cores: int = 1,
) -> None:
    """Run jobs on a Ray cluster, as many at once as it has room for.

    ``address`` is "auto" for the cluster this machine belongs to, "local" for a new one, or
    host:port; a population has a GPU or ``cores`` to itself. Failures are raised at the end.
    """
    ray = _connect(address)
    waiting = {}
    for job, folder in jobs:
        gpus = float(job.settings.device.startswith("cuda"))
        task = ray.remote(_run_remote).options(num_cpus=cores, num_gpus=gpus, max_retries=RETRIES)
        waiting[task.remote(job, str(folder.absolute()), command)] = job

    def outcomes() -> Iterator[tuple[Job, Result]]:
        while waiting:
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            yield waiting.pop(done), partial(ray.get, done)

    with StopPopulations():  # Ray would answer SIGTERM with a crash
        keep_records(outcomes(), store, len(jobs), progress)


def cluster_device(address: str) -> str:
    """The device that a cluster trains on by default: "cuda" if it has GPUs."""
    return "cuda" if _connect(address).cluster_resources().get("GPU") else "cpu"


def _run_remote(job: Job, folder: str, command: str) -> list[Record] | None:
    """``run_job`` on a worker; the records are sent back."""
    return run_job(job, Path(folder), command, progress=False)


def _connect(address: str) -> Any:
    """Connect to the cluster and return the ``ray`` module."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
    # Ray's future default, whose warning it silences.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(
            'several machines need Ray: pip install "damper-rl[ray]".'
        ) from error
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, ValueError) as error:
        raise DamperError(
            f"ray must be the address of a running cluster, but {address!r} does not answer: "
            "start one with `ray start --head`, or give 'local'."
        ) from error
    return ray
