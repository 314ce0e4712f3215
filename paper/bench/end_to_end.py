"""Training as users run it: steps per second of the whole loop, and where its time goes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from damper.engine.device.precision import device_context
from damper.engine.loop.trainer import Trainer
from damper.engine.settings import Settings, resolve
from paper.bench.interleaved_timing import wait
from paper.bench.result import Measurement
from paper.bench.workloads import (
    MODES,
    ExecutionMode,
    Transitions,
    backends,
    fill_replay,
    random_transitions,
)

# Timing starts here: with a short replay most batches hold the newest step and must wait for it.
START_STEP = 100_000
SCOPE = (
    f"The real training loop, `authors` protocol, one update per step, from step {START_STEP:,} of "
    "a million on, with as many random transitions in the replay. Steps/s of each agent: median "
    "over stretches. Simulator and shares: a second run in which every part waits for the device "
    "and all environments step at once; µs from actions sent to a step of all received. The rest "
    "is storing."
)


def end_to_end(
    mode: ExecutionMode,
    backbones: Sequence[str],
    methods: Sequence[str],
    tasks: Sequence[str],
    n_agents: int,
    steps: int,
    env_threads: int | None = None,
) -> Measurement:
    """Train every task for ``steps`` steps with every installed backend."""
    rows = []
    for task in tasks:
        data = random_transitions(task)
        for backend, backbone, method in product(backends(task), backbones, methods):
            settings = resolve(
                task,
                backbone,
                method,
                range(n_agents),
                10 * START_STEP,
                "authors",
                batch_size=mode.batch_size,
                device=mode.device,
                tf32=mode.tf32,
                backend=backend,
                env_threads=env_threads,
                buffer_size=START_STEP,
                log_every=max(1, steps // 12),
                checkpoint_every=0,
                **MODES[mode.mode],
            )
            row: dict[str, Any] = {"task": task, "backend": backend, "backbone": backbone.upper()}
            row |= {"method": method, "agents": n_agents}
            row["steps/s"] = speed(settings, data, steps)
            rows.append({**row, **shares(settings, data, steps)})
    record = {**mode.record(), "steps": steps}
    return Measurement("end-to-end", "Training end to end", SCOPE, rows, ("steps/s",), record)


class _Enough(Exception):  # noqa: N818  # not an error
    """Enough steps were timed."""


def _train(trainer: Trainer, data: Transitions, steps: int) -> None:
    """Train from ``START_STEP`` to the first line of the log at least ``steps`` steps later."""

    def stop(line: dict[str, Any]) -> None:
        if line["step"] >= START_STEP + steps:
            raise _Enough

    fill_replay(trainer.learner.replay, data)
    trainer.step, trainer.metrics_writers = START_STEP, (*trainer.metrics_writers, stop)
    with suppress(_Enough):
        trainer.train()


def speed(settings: Settings, data: Transitions, steps: int) -> float:
    """Steps per second of each agent while learning."""
    lines: list[tuple[int, float]] = []

    def note(line: dict[str, Any]) -> None:
        lines.append((line["step"], time.perf_counter()))

    with tempfile.TemporaryDirectory() as folder, device_context(settings.device, settings.tf32):
        _train(Trainer(settings, Path(folder) / "run", (note,)), data, steps)
    # Compilation and graph capture are before the first line.
    return statistics.median((b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(lines))


def shares(settings: Settings, data: Transitions, steps: int) -> dict[str, float]:
    """Microseconds of one step of all environments; per cent of time by what is done."""
    spent = dict.fromkeys(("stepping %", "acting %", "updating %"), 0.0)
    lines: list[tuple[float, int, dict[str, float]]] = []

    def note(line: dict[str, Any]) -> None:
        lines.append((time.perf_counter(), line["step"], dict(spent)))

    with tempfile.TemporaryDirectory() as folder, device_context(settings.device, settings.tf32):
        trainer = Trainer(settings, Path(folder) / "run", (note,))
        # Updates made ahead would count as stepping.
        setattr(trainer, "update_ahead", lambda: None)  # noqa: B010  # assigning is a type error
        _time_steps(trainer.pool, spent)
        acting, learner = trainer.acting, trainer.learner
        parts = ((acting, "start", "acting"), (acting, "actions", "acting"))
        for owner, part, name in (*parts, (learner, "update", "updating")):
            timed = _timed(getattr(owner, part), spent, f"{name} %", settings.device)
            setattr(owner, part, timed)
        _train(trainer, data, steps)
    (start, first, before), (end, last, after) = lines[0], lines[-1]
    times = {name: after[name] - before[name] for name in spent}
    shares = {name: 100.0 * seconds / (end - start) for name, seconds in times.items()}
    return {"simulator µs": 1e6 * times["stepping %"] / (last - first), **shares}


def _time_steps(pool: Any, spent: dict[str, float]) -> None:
    """Time the pool from the start of ``send`` to the end of ``receive``."""
    send, receive = pool.send, pool.receive
    began = [0.0]

    def timed_send(actions: Any) -> None:
        began[0] = time.perf_counter()
        send(actions)

    def timed_receive() -> Any:
        transition = receive()
        spent["stepping %"] += time.perf_counter() - began[0]
        return transition

    pool.send, pool.receive = timed_send, timed_receive


def _timed(function: Callable[..., Any], spent: dict[str, float], name: str, device: str) -> Any:
    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        wait(device)
        spent[name] += time.perf_counter() - start
        return result

    return timed
