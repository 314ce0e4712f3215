"""Whole updates of the engine beside those of other implementations, on the same machine and transitions."""

from __future__ import annotations

from collections.abc import Sequence

from damper.bench import peers
from damper.bench.interleaved_timing import Plan, Workload, time_interleaved
from damper.bench.result import Measurement
from damper.bench.workloads import ExecutionMode, Transitions, make_learner, whole_update

SCOPE = (
    "A whole update as training does it: sampling, noise, forward passes, losses, gradients, optimiser steps, target "
    "copies, sums for the log. Every row has the same networks, batch size and transitions; DAMPER with η = 0."
)
WARM_UP = 20


def compare_implementations(
    data: Transitions, mode: ExecutionMode, backbones: Sequence[str], methods: Sequence[str], plan: Plan
) -> Measurement:
    """Time ours, SB3's and SBX's updates in turns; what is not installed has no row."""
    rows: list[dict[str, object]] = []
    for backbone in backbones:
        workloads = _workloads(data, mode, backbone, methods)
        times = time_interleaved(workloads, plan, WARM_UP)
        base = "SB3 plain" if "SB3 plain" in workloads else next(iter(workloads))
        for name in workloads:
            row = {"backbone": backbone.upper(), "implementation": name, "ms": times.median_ms(name)}
            rows.append({**row, f"× {base}": times.ratio(name, base), "× faster": times.ratio(base, name)})
    record = mode.record() | plan.record()
    return Measurement("peers", f"Whole updates, {data.env}", SCOPE, rows, ("ms",), record)


def _workloads(data: Transitions, mode: ExecutionMode, backbone: str, methods: Sequence[str]) -> dict[str, Workload]:
    workloads = {f"damper engine {m}": whole_update(make_learner(data, backbone, m, mode)) for m in methods}
    if peers.has_sb3():
        workloads["SB3 plain"] = peers.whole_train(peers.sb3_model(data, backbone, mode), mode.batch_size)
        for method in methods:
            if method != "plain":
                model = peers.sb3_model(data, backbone, mode, method)
                workloads[f"damper.sb3 {method}"] = peers.whole_train(model, mode.batch_size)
    if peers.has_sbx() and mode.device == "cpu":
        workloads["SBX plain"] = peers.whole_train(peers.sbx_model(data, backbone, mode), mode.batch_size)
    return workloads
