"""The paper's update-time table, measured in its scope, beside its numbers."""

from __future__ import annotations

from pathlib import Path

from damper.provenance import code_version, hardware, versions
from paper.bench import peers
from paper.bench.interleaved_timing import InterleavedTimes, Plan, time_interleaved
from paper.bench.result import Measurement
from paper.bench.workloads import ExecutionMode, Subjects, Transitions, make_learner, paper_update
from paper.experiments.printed import paper, title
from paper.experiments.timings import Timing, write_timing

WARM_UP = 50
SCOPE = (
    "Forward passes, losses, gradients, optimiser steps on one fixed batch; no sampling, target "
    "copies or logging. DAMPER with η = 0. SB3 in the same scope: batch fixed, its Polyak updates "
    "switched off, its log without output."
)
SB3 = "plain, SB3"


def update_time(
    subjects: Subjects, mode: ExecutionMode, plan: Plan
) -> tuple[Measurement, dict[str, InterleavedTimes]]:
    """Time the methods of each backbone, and SB3's plain update where it is, in turns."""
    data, rows, turns = subjects.data, [], {}
    for backbone in subjects.backbones:
        learners = {m: make_learner(data, backbone, m, mode) for m in subjects.methods}
        workloads = {method: paper_update(learner) for method, learner in learners.items()}
        if peers.has_sb3():
            model = peers.sb3_model(data, backbone, mode)
            workloads[SB3] = peers.paper_train(model, backbone, mode.batch_size)
        times = time_interleaved(workloads, plan, WARM_UP)
        rows += [_row(times, backbone, name) for name in workloads]
        turns[backbone] = times
    bars, record = ("ms", "× plain"), mode.record() | plan.record()
    return Measurement("update", f"Update time, {data.env}", SCOPE, rows, bars, record), turns


def _row(times: InterleavedTimes, backbone: str, name: str) -> dict[str, object]:
    printed = paper()["update_time_ms"].get(title(name), {}).get(backbone, {})
    base = "plain" if "plain" in times.seconds else name
    return {
        "backbone": backbone.upper(),
        "method": name,
        "ms": times.mean_ms(name),
        "median ms": times.median_ms(name),
        "× plain": times.ratio(name, base),
        "× SB3's plain": times.ratio(name, SB3) if SB3 in times.seconds else None,
        "paper's ms": printed.get("ms"),
        "paper's × plain": printed.get("ratio"),
    }


def write_timings(
    results: Path,
    data: Transitions,
    measurement: Measurement,
    turns: dict[str, InterleavedTimes],
    command: str,
) -> list[Path]:
    """Write the engine's timings to the store that ``python -m paper report`` reads."""
    how = {**measurement.how, "implementation": "damper", "scope": "paper"}
    iterations, _ = how.pop("iterations"), how.pop("rounds")
    paths = []
    for backbone, times in turns.items():
        for method, seconds in times.seconds.items():
            if method == SB3:
                continue
            timing = Timing(
                backbone=backbone,
                method=method,
                task=data.env,
                milliseconds=times.mean_ms(method),
                iterations=int(iterations),
                agents=1,
                batch_size=256,
                how=how,
                versions=versions(),
                hardware=hardware(str(how["device"])),
                command=command,
                rounds=[1e3 * turn for turn in seconds],
                **code_version(),
            )
            paths.append(write_timing(results, timing))
    return paths
