"""Populations on more than one machine: Ray hands each to a GPU or to a group of cores, records come back here.

A run's folder is where its checkpoints lie. If it is on storage that all machines share, a population whose worker is
lost goes on elsewhere from its last checkpoint; if not, it starts anew. Records travel with the result either way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from damper.errors import DamperError, MissingExtraError
from damper.experiments.population_plan import Job
from damper.experiments.runners.in_process import run_job
from damper.experiments.runners.outcomes import Result, keep_records
from damper.experiments.store import Record, Store

RETRIES = 10  # of a population whose worker or machine is lost; a mistake in the settings is not tried again


def run_on_ray(
    jobs: Sequence[tuple[Job, Path]],
    store: Store,
    command: str,
    progress: bool = True,
    address: str = "auto",
    cores: int = 1,
) -> None:
    """Run jobs on a Ray cluster, as many at once as it has room for, and keep each one's records as it ends.

    A population on a GPU has one to itself. What fails is told when the others are done.

    Args:
        jobs: populations with their folders.
        store: where records go, on this machine.
        command: what the records say made them.
        progress: say when a population ends.
        address: of the cluster: "auto" for the one this machine belongs to, "local" for a new one, or host:port.
        cores: processor cores for each population.
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

    keep_records(outcomes(), store, len(jobs), progress)


def cluster_device(address: str) -> str:
    """Where a cluster trains by default: on its GPUs, if it has any."""
    return "cuda" if _connect(address).cluster_resources().get("GPU") else "cpu"


def _run_remote(job: Job, folder: str, command: str) -> list[Record] | None:
    """On a worker: train or go on, evaluate, send the records back."""
    return run_job(job, Path(folder), command, progress=False)


def _connect(address: str) -> Any:
    """Ray, connected."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's coming default; silences its notice
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError('several machines need Ray: pip install "damper-rl[ray]".') from error
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, ValueError) as error:
        raise DamperError(
            f"ray must be the address of a running cluster, but {address!r} does not answer: "
            "start one with `ray start --head`, or give 'local'."
        ) from error
    return ray
