"""How the cost grows with the population: time per update and per agent, and memory."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import product

import torch

from damper.engine.update.learner import Learner
from paper.bench.interleaved_timing import Plan, time_interleaved
from paper.bench.result import Measurement
from paper.bench.workloads import ExecutionMode, Subjects, make_learner, whole_update

SCOPE = (
    "Whole updates; the methods of one size take turns. State: parameters, targets and moments. "
    "Peak: the most that the GPU's allocator held (all methods of that size together), the replay "
    "of 2,000 transitions per agent included."
)
WARM_UP = 6


def scaling(subjects: Subjects, mode: ExecutionMode, plan: Plan) -> Measurement:
    """Time populations of each size; on a CPU, larger ones for fewer iterations."""
    rows = []
    for backbone, n_agents in product(subjects.backbones, subjects.sizes):
        fewer = max(1, plan.iterations // n_agents) if mode.device == "cpu" else plan.iterations
        rows += _size(subjects, mode, backbone, n_agents, replace(plan, iterations=fewer))
    bars, record = ("ms", "µs per agent"), mode.record() | plan.record()
    title = f"Population size, {subjects.data.env}"
    return Measurement("scaling", title, SCOPE, rows, bars, record)


def _size(
    subjects: Subjects, mode: ExecutionMode, backbone: str, n_agents: int, plan: Plan
) -> list[dict[str, object]]:
    data, methods = subjects.data, subjects.methods
    cuda = mode.device.startswith("cuda")
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    learners = {method: make_learner(data, backbone, method, mode, n_agents) for method in methods}
    workloads = {method: whole_update(learner) for method, learner in learners.items()}
    times = time_interleaved(workloads, plan, WARM_UP)
    peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else None
    rows = []
    for method, learner in learners.items():
        ms = times.median_ms(method)
        row: dict[str, object] = {"backbone": backbone.upper(), "method": method}
        row |= {"agents": n_agents, "ms": ms}
        row |= {"µs per agent": 1e3 * ms / n_agents, "× first": times.ratio(method, methods[0])}
        rows.append({**row, "state MiB": _state_bytes(learner) / 2**20, "peak MiB": peak})
    return rows


def _state_bytes(learner: Learner) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in learner.state().values())
