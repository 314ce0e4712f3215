"""What is missing of the paper's tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from damper.provenance import digest
from damper.tables import markdown_table
from damper.terminal import duration
from paper.experiments.catalogue import EXPERIMENTS, AgentSpec, Request, expand_request
from paper.experiments.population_plan import pack
from paper.experiments.reproduce import estimate
from paper.runners.workers import fitting_workers
from paper.statistics.cells import Setup, main_setups

TOGETHER = "**all together**"


def missing_table(every_setup: Sequence[Setup]) -> str:
    """Agents on record and missing, per protocol and experiment, with their time on one machine."""
    records = [record for setup in every_setup for cell in setup.cells for record in cell.records]
    machines = Counter(r.hardware["cores"] for r in records if r.hardware.get("gpu"))
    if not machines:
        return "No record is from a GPU yet, so no time can be estimated.\n"
    (cores, _), rows = machines.most_common(1)[0], []
    for setup in main_setups(every_setup):
        there = {_in_setup(record.identity) for cell in setup.cells for record in cell.records}
        for name, agents in _experiments(setup):
            left = [agent for agent in agents if _in_setup(agent.identity) not in there]
            if left:
                jobs = pack(left)
                seconds, no_speed = estimate(jobs, records, fitting_workers(jobs, cores))
                tasks = Counter(agent.identity["task"] for agent in left)
                missing = ", ".join(f"{task} {count}" for task, count in tasks.items())
                time = "≥ " * bool(no_speed) + duration(seconds)
                done = f"{len(agents) - len(left)} of {len(agents)}"
                rows.append([f"`{setup.protocol}` {name}", done, missing, time])
    header = ["experiment", "on record", "agents missing", "time left"]
    return markdown_table(header, rows) if rows else "Nothing.\n"


def _experiments(setup: Setup) -> Iterator[tuple[str, list[AgentSpec]]]:
    """Each experiment's agents under a setup's protocol, on a GPU, and all of them together."""
    settings = {"device": "cuda", "backend": setup.backend, "tf32": setup.numerics["tf32"]}
    every: dict[str, AgentSpec] = {}
    for name, experiment in EXPERIMENTS.items():
        if experiment.trained:
            request = Request(
                (name,), protocol=str(setup.protocol), settings=settings, trained_here=False
            )
            agents = expand_request(request)
            every |= {agent.digest: agent for agent in agents}
            yield f"`{name}`", agents
    yield TOGETHER, list(every.values())


def _in_setup(identity: Mapping[str, Any]) -> str:
    """An agent among those of one setup."""
    names = ("backbone", "task", "method", "seed", "method_settings")
    return digest([identity[name] for name in names])
