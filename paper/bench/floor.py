"""How far an update is from the machine's limit: its matrix rate and its bandwidth."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from damper.engine.update.learner import Learner
from paper.bench.interleaved_timing import Plan, time_interleaved
from paper.bench.result import Measurement
from paper.bench.workloads import ExecutionMode, Subjects, make_learner, networks_step, paper_update

SCOPE = (
    "Operations: those of the matrix products, counted in a real update (per iteration). Bytes: "
    "parameters and both moments of what is stepped, read and written once, and the targets read "
    "once. Rates: the best of several matrix products and copies, measured in the same run. Limit: "
    "the longer of the two times."
)
WARM_UP = 10
# Batch, rows, inner, columns.
PRODUCTS = ((1, 2048, 2048, 2048), (1, 4096, 4096, 4096), (64, 256, 400, 300))


def floor(subjects: Subjects, mode: ExecutionMode, plan: Plan) -> Measurement:
    """Measured time over the machine's limit, by backbone, method and population size."""
    rows = []
    torch.backends.cuda.matmul.allow_tf32 = mode.tf32
    rate, bandwidth = matrix_rate(plan), copy_rate(plan)
    data, methods = subjects.data, subjects.methods
    for backbone, n_agents in product(subjects.backbones, subjects.sizes):
        learners = {m: make_learner(data, backbone, m, mode, n_agents) for m in methods}
        counted = {m: (operations(of), least_bytes(of)) for m, of in learners.items()}
        workloads = {m: paper_update(learner) for m, learner in learners.items()}
        measured = time_interleaved(workloads, plan, WARM_UP)
        for method, (flops, moved) in counted.items():
            ms, base = measured.median_ms(method), counted[methods[0]][0]
            by_operations, by_bytes = 1e3 * flops / rate, 1e3 * moved / bandwidth
            row = {"backbone": backbone.upper(), "method": method, "agents": n_agents}
            row |= {"ms": ms, "ms by operations": by_operations, "ms by bytes": by_bytes}
            row |= {"× limit": ms / max(by_operations, by_bytes), "Mflop": flops / 1e6}
            rows.append({**row, "operations × first": flops / base, "MB": moved / 1e6})
    record: dict[str, Any] = mode.record() | plan.record()
    record |= {"matrix rate, Gflop/s": rate / 1e9, "bandwidth, GB/s": bandwidth / 1e9}
    title = f"Distance from the limit: {rate / 1e9:,.0f} Gflop/s, {bandwidth / 1e9:,.0f} GB/s"
    return Measurement("floor", title, SCOPE, rows, ("ms", "× limit"), record)


def operations(learner: Learner) -> float:
    """Matrix products' operations, counted in a real iteration; the mean of TD3's two kinds."""
    counts = []
    for with_actor in (True,) if learner.settings.backbone == "sac" else (False, True):
        with FlopCounterMode(display=False) as counter:
            networks_step(learner, with_actor)()
        counts.append(float(counter.get_total_flops()))
    if len(counts) == 1:
        return counts[0]
    share = 1.0 / learner.settings.policy_delay
    return (1.0 - share) * counts[0] + share * counts[1]


def least_bytes(learner: Learner) -> float:
    """The least bytes of an iteration: parameters and moments both ways, targets read."""
    state, sac = learner.state(), learner.settings.backbone == "sac"
    actor, critic = (float(state[name].nbytes) for name in ("actor", "critic"))
    share = 1.0 if sac else 1.0 / learner.settings.policy_delay
    targets = critic + (actor if "actor_target" in state else 0.0)
    return 6.0 * (critic + share * actor) + targets


def matrix_rate(plan: Plan) -> float:
    """Operations per second of the fastest of several matrix products."""
    rates = []
    for batch, rows, inner, columns in PRODUCTS:
        a = torch.randn(batch, rows, inner, device=plan.device)
        b = torch.randn(batch, inner, columns, device=plan.device)
        seconds = _seconds(functools.partial(torch.bmm, a, b), plan)
        rates.append(2.0 * batch * rows * inner * columns / seconds)
    return max(rates)


def copy_rate(plan: Plan) -> float:
    """Bytes per second, read and written, of a copy too large for any cache."""
    source = torch.randn(2**26 if plan.device == "cpu" else 2**28, device=plan.device)
    target = torch.empty_like(source)
    return 2.0 * source.nbytes / _seconds(lambda: target.copy_(source), plan)


def _seconds(function: Callable[[], object], plan: Plan, repetitions: int = 5) -> float:
    """Seconds of the fastest of several calls: a limit is what the machine can do undisturbed."""
    function()
    times = []
    for _ in range(repetitions):
        start = plan.now()
        function()
        times.append(plan.now() - start)
    return min(times)
