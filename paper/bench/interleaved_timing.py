"""Time workloads alternately, so that a busy machine slows all of them equally."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Workload = Callable[[int], None]  # runs that many iterations
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


@dataclass(frozen=True)
class InterleavedTimes:
    """Seconds per iteration of each workload, one number per round."""

    seconds: Mapping[str, list[float]]

    def mean_ms(self, name: str) -> float:
        """Mean over all timed iterations, in milliseconds: what the paper reports."""
        return 1e3 * statistics.fmean(self.seconds[name])

    def median_ms(self, name: str) -> float:
        """Median over the rounds, in milliseconds."""
        return 1e3 * statistics.median(self.seconds[name])

    def ratio(self, name: str, base: str) -> float:
        """Median over the rounds of each round's ratio, which a busy machine changes least."""
        pairs = zip(self.seconds[name], self.seconds[base], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


@dataclass(frozen=True)
class Plan:
    """How workloads are timed: iterations over all rounds, on one clock, waiting for the device.

    ``clock`` is "wall", or "processor" for the CPU time of this process's threads together.
    """

    iterations: int
    rounds: int = 20
    clock: str = "wall"
    device: str = "cpu"

    def now(self) -> float:
        """Seconds on the clock, after waiting for the device."""
        wait(self.device)
        return CLOCKS[self.clock]()

    def record(self) -> dict[str, int | str]:
        """The plan as data, for saved measurements."""
        return {"iterations": self.iterations, "rounds": self.rounds, "clock": self.clock}


def wait(device: str) -> None:
    """Wait until a GPU is done; no effect on a CPU."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def time_interleaved(
    workloads: Mapping[str, Workload], plan: Plan, warm_up: int
) -> InterleavedTimes:
    """Warm up every workload (compilation, graph capture, caches), then time them in turns."""
    for workload in workloads.values():
        workload(warm_up)
    # An even number, so that every turn has TD3's share of actor updates.
    each, names = 2 * max(1, plan.iterations // plan.rounds // 2), list(workloads)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(max(1, min(plan.rounds, plan.iterations // each))):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            start = plan.now()
            workloads[name](each)
            seconds[name].append((plan.now() - start) / each)
    return InterleavedTimes(seconds)
