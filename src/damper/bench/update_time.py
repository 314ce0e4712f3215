"""The paper's update-time table: all methods on both backbones in its protocol, beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from damper.bench import peers
from damper.bench.interleaved_timing import Plan, Turns, take_turns
from damper.bench.result import Found
from damper.bench.workloads import ExecutionMode, Transitions, make_learner, paper_update
from damper.engine.run.provenance import code, hardware, versions
from damper.experiments.paper import paper, title
from damper.experiments.timings import Timing, write_timing

METHODS = ("plain", "caps", "grad-caps", "asap", "l2c2", "pave", "damper")
WARM_UP = 50
SCOPE = (
    "Forward passes, losses, gradients, optimiser steps on one fixed batch; no sampling, target copies or logging. "
    "DAMPER with η = 0. SB3 in the same scope: batch fixed, its Polyak updates switched off, its log without output."
)
SB3 = "plain, SB3"


def update_time(
    data: Transitions, how: ExecutionMode, backbones: Sequence[str], methods: Sequence[str], plan: Plan
) -> tuple[Found, dict[str, Turns]]:
    """Time the methods of each backbone in turns, with SB3's plain update among them where it is installed."""
    rows, turns = [], {}
    for backbone in backbones:
        subjects = {method: paper_update(make_learner(data, backbone, method, how)) for method in methods}
        if peers.has_sb3():
            model = peers.sb3_model(data, backbone, how)
            subjects[SB3] = peers.paper_train(model, backbone, how.batch_size)
        taken = take_turns(subjects, plan, WARM_UP)
        rows += [_row(taken, backbone, name) for name in subjects]
        turns[backbone] = taken
    record = how.record() | plan.record()
    found = Found("update", f"Update time, {data.env}", SCOPE, rows, ("ms", "× plain"), record)
    return found, turns


def _row(taken: Turns, backbone: str, name: str) -> dict[str, object]:
    printed = paper()["update_time_ms"].get(title(name), {}).get(backbone, {})
    base = "plain" if "plain" in taken.seconds else name
    return {
        "backbone": backbone.upper(),
        "method": name,
        "ms": taken.mean_ms(name),
        "median ms": taken.median_ms(name),
        "× plain": taken.ratio(name, base),
        "× SB3's plain": taken.ratio(name, SB3) if SB3 in taken.seconds else None,
        "paper's ms": printed.get("ms"),
        "paper's × plain": printed.get("ratio"),
    }


def write_timings(results: Path, data: Transitions, found: Found, turns: dict[str, Turns], command: str) -> list[Path]:
    """The engine's timings into the store that ``damper report`` reads."""
    how = {**found.how, "implementation": "damper", "scope": "paper"}
    how = {name: value for name, value in how.items() if name not in ("iterations", "rounds")}
    return [
        write_timing(
            results,
            Timing(
                backbone=backbone,
                method=method,
                task=data.env,
                milliseconds=taken.mean_ms(method),
                iterations=int(found.how["iterations"]),
                agents=1,
                batch_size=256,
                how=how,
                versions=versions(),
                hardware=hardware(str(how["device"])),
                command=command,
                rounds=[1e3 * seconds for seconds in taken.seconds[method]],
                **code(),
            ),
        )
        for backbone, taken in turns.items()
        for method in taken.seconds
        if method != SB3
    ]
