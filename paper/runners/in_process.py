"""Run populations in this process: train or resume, evaluate, record."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from damper.engine.run.folder import Run
from damper.engine.run.lock import RunLockedError, run_lock
from damper.engine.settings import EXECUTION, Settings
from damper.engine.train import run_settings
from damper.errors import DamperError
from damper.methods import find_method
from damper.policies.evaluate import evaluate
from damper.provenance import digest, versions
from damper.terminal import counted
from paper.experiments.catalogue import AgentSpec
from paper.experiments.identity import identity, physics
from paper.experiments.population_plan import Job, pack
from paper.experiments.records import make_record
from paper.experiments.store import Record, Store
from paper.runners.outcomes import Result, keep_records


def run_job(job: Job, folder: Path, command: str, progress: bool = True) -> list[Record] | None:
    """Train or resume and evaluate a population; None if another process is training it."""
    check_physics(job)
    try:
        with run_lock(folder):
            return record_run(run_settings(job.settings, folder, progress), job, command)
    except RunLockedError:
        return None


def run_here(
    jobs: Sequence[tuple[Job, Path]], store: Store, command: str, progress: bool = True
) -> None:
    """Run jobs one by one in this process; a job that another process is training is skipped."""

    def outcomes() -> Iterator[tuple[Job, Result]]:
        for job, folder in jobs:
            yield job, partial(run_job, job, folder, command, progress)
            _release()

    keep_records(outcomes(), store, len(jobs), progress)


def _release() -> None:
    """Free the last population's memory, on the device too, for the next one."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def check_physics(job: Job) -> None:
    """Raise if the simulators installed here are not those in the agents' identities."""
    settings, wanted = job.settings, job.wanted[0].identity["physics"]
    here = physics(settings.env_id, settings.backend, versions())
    if here != wanted:
        raise DamperError(
            f"the machine that trains must simulate with {wanted}, but has {here}: install the "
            "same versions there."
        )


def record_run(run: Run, job: Job, command: str) -> list[Record]:
    """Evaluate a finished run on the fixed seeds and make one record per wanted agent."""
    settings, first = job.settings, job.wanted[0].identity
    episodes, env = int(first["episodes"]), None if settings.env_kwargs else settings.env
    how: dict[str, Any] = {"backend": settings.backend, "env_threads": settings.env_threads}
    evaluation = evaluate(run, env, episodes, **how)
    by_digest = {agent.digest: agent for agent in job.wanted}
    manifest, records = run.manifest, []
    code = manifest["custom_code"]
    for index, row in enumerate(run.agents):
        agent_identity = identity(manifest["settings"], row, first["physics"], episodes, code)
        agent = by_digest.get(digest(agent_identity))
        if agent is not None:
            records.append(make_record(run, evaluation, index, agent_identity, agent.rank, command))
    if len(records) < len(by_digest):
        raise DamperError(
            f"{run.path} must hold the {counted(len(by_digest), 'agent')} asked for, but "
            f"{len(records)} match: the code that trained them differs from that of the asking "
            "process; install the same code on every machine."
        )
    return records


def plan(
    missing: Sequence[AgentSpec], out: Path, max_agents: int | None = None
) -> list[tuple[Job, Path]]:
    """Jobs and folders for the missing agents: runs begun in ``out``, then new populations."""
    left = {agent.digest: agent for agent in missing}
    jobs: list[tuple[Job, Path]] = []
    for path in sorted(out.glob("*/*/manifest.json")):
        run = Run(path.parent)
        job = _begun(run, left)
        if job is not None:
            jobs.append((job, run.path))
            for agent in job.wanted:
                del left[agent.digest]
    return [*jobs, *((job, job.folder(out)) for job in pack(left.values(), max_agents))]


def _begun(run: Run, left: Mapping[str, AgentSpec]) -> Job | None:
    """A started run as a job, if all its agents are missing, or some are and it is finished."""
    manifest = run.manifest
    try:
        record = manifest["settings"]
        find_method(record["method"])
    except DamperError:
        return None  # its method is not registered in this process, so no missing agent has it
    some = next(iter(left.values()), None)
    if some is None or set(record) != {f.name for f in fields(Settings)}:
        return None  # nothing is missing, or the run is of a later version of the engine
    installed = physics(record["env"], record["backend"], manifest["versions"])
    how = (installed, some.identity["episodes"], manifest["custom_code"])
    digests = [digest(identity(record, row, *how)) for row in manifest["agents"]]
    mine = tuple(left[agent_digest] for agent_digest in digests if agent_digest in left)
    if not mine or (len(mine) < len(digests) and not manifest["finished"]):
        return None
    return Job(_settings(record, mine[0].settings), mine)


def _settings(record: Mapping[str, Any], now: Settings) -> Settings:
    """A manifest's settings with the execution settings of now."""

    def tuples(values: Mapping[str, Any]) -> dict[str, Any]:
        return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}

    content = {**tuples(record), "method_settings": tuples(record["method_settings"])}
    free = {name: getattr(now, name) for name in EXECUTION if name not in ("compile", "graph")}
    return replace(Settings(**content), **free)
