"""``damper bench``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from rich.console import Console

from damper.bench import peers
from damper.bench.end_to_end import end_to_end
from damper.bench.floor import floor
from damper.bench.found import Found, read
from damper.bench.scaling import scaling
from damper.bench.subjects import How, Transitions, random_transitions
from damper.bench.turns import Plan
from damper.bench.update_time import METHODS, update_time, write_timings
from damper.bench.versus import versus
from damper.errors import DamperError

PAIR = ("plain", "damper")
PARTS = ("update", "peers", "scaling", "end-to-end", "floor", "sb3")


@dataclass
class Bench:
    """Measure speed: everything that is compared runs in one process, turn by turn; ratios are medians over the turns.

    update: the paper's update-time table in its protocol, beside its numbers. peers: whole updates beside
    Stable-Baselines3's and SBX's. scaling: cost by population size. end-to-end: steps per second of training. floor:
    distance from what the machine's matrix rate and bandwidth allow. sb3: our SB3 classes beside SB3's.
    """

    what: tyro.conf.Positional[Literal["update", "peers", "scaling", "end-to-end", "floor", "sb3", "all"]] = "all"
    """Which measurement."""
    device: str = "cpu"
    """Where updates run, as in torch: cpu, cuda."""
    mode: Literal["eager", "compile", "graph", "compile-graph"] | None = None
    """How the engine's updates run; eager on a CPU and compile-graph on a GPU by default."""
    tf32: bool = False
    """Matrix products in TF32 on a GPU."""
    backbones: tuple[Literal["td3", "sac"], ...] = ("td3", "sac")
    """Which backbones."""
    methods: tuple[str, ...] = ()
    """Which methods; the paper's seven for update, plain and damper elsewhere."""
    iterations: int | None = None
    """Timed updates of each subject; 1000 (the paper's number) on a GPU, 100 on a CPU."""
    rounds: int = 20
    """How often the subjects take turns."""
    clock: Literal["wall", "processor"] = "wall"
    """On a CPU that others use too, processor time (of all threads together) is what they hardly move."""
    sizes: tuple[int, ...] = ()
    """Population sizes; 1 5 10 35 100 300 for scaling (up to 35 on a CPU), 1 for floor."""
    task: str = "Hopper"
    """Whose random transitions the updates see."""
    tasks: tuple[str, ...] = ("Pendulum", "Hopper")
    """Tasks of end-to-end."""
    agents: int = 1
    """Agents of end-to-end."""
    populations: tuple[int, ...] = (1,)
    """As how many populations side by side end-to-end trains them (EnvPool); 1 2 measures both."""
    steps: int = 600
    """Steps per agent of end-to-end."""
    overlap: bool = False
    """Let end-to-end update while the environments step."""
    env_threads: int | None = None
    """EnvPool's threads of end-to-end; as many as there are cores by default."""
    threads: int | None = None
    """Threads of torch on the CPU; torch's own choice by default."""
    out: Path = Path("bench")
    """Where tables, plots and JSON go."""
    results: Path | None = None
    """Also keep update times in this store of records, from which `damper report` makes the paper's cost table."""

    show: tuple[Path, ...] = ()
    """Print these saved measurements as Markdown, and measure nothing."""

    def run(self) -> None:
        """Measure, print, keep."""
        if self.show:
            print(
                "\n".join(f"**{found.title}.** {found.scope}\n\n{found.markdown()}" for found in map(read, self.show))
            )
            return
        self._check()
        if self.threads:
            torch.set_num_threads(self.threads)
        for part in PARTS if self.what == "all" else (self.what,):
            found = self._measure(part)
            if found is not None:
                Console().print(found.table())
                for path in found.save(self.out, self._command(part)):
                    Console().print(str(path), highlight=False)

    def _check(self) -> None:
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise DamperError("device must be one that this machine has, but no GPU was found: use --device cpu.")
        if self.clock == "processor" and self.device != "cpu":
            raise DamperError("clock must be 'wall' on a GPU, but 'processor' was given: leave it out.")
        if self.mode and "graph" in self.mode and self.device == "cpu":
            raise DamperError(f"mode must be eager or compile on a CPU, but {self.mode!r} was given: leave it out.")
        if self.rounds < 1 or (self.iterations is not None and self.iterations < 1):
            raise DamperError("iterations and rounds must be at least 1, but a smaller number was given.")
        if self.what == "sb3" and not peers.has_sb3():
            raise DamperError(
                "this measurement must have Stable-Baselines3, but it is not installed: pip install 'damper-rl[sb3]'."
            )

    @property
    def how(self) -> How:
        """Where and how updates run."""
        return How(self.device, self.mode or ("eager" if self.device == "cpu" else "compile-graph"), self.tf32)

    def _command(self, part: str) -> str:
        """What measures this again; where it was kept is this machine's business."""
        words, kept = iter(sys.argv[1:]), []
        for word in words:
            if word in ("--out", "--results"):
                next(words, None)
            elif word not in ("bench", self.what) and not word.startswith(("--out=", "--results=")):
                kept.append(word)
        return " ".join(["damper", "bench", part, *kept])

    def _data(self) -> Transitions:
        return random_transitions(self.task)

    def _measure(self, part: str) -> Found | None:
        cpu, methods = self.device == "cpu", self.methods or PAIR
        plan = Plan(self.iterations or (100 if cpu else 1000), self.rounds, self.clock, self.device)
        shared = (self.how, self.backbones)
        if part == "update":
            data = self._data()
            found, turns = update_time(data, *shared, self.methods or METHODS, plan)
            if self.results:
                write_timings(self.results, data, found, turns, self._command(part))
            return found
        if part == "peers":
            return versus(self._data(), *shared, methods, plan)
        if part == "scaling":
            sizes = self.sizes or ((1, 5, 10, 35) if cpu else (1, 5, 10, 35, 100, 300))
            return scaling(self._data(), *shared, methods, sizes, plan)
        if part == "end-to-end":
            what = (*shared, methods, self.tasks)
            return end_to_end(*what, self.agents, self.steps, self.overlap, self.populations, self.env_threads)
        if part == "floor":
            return floor(self._data(), *shared, methods, self.sizes or (1,), plan)
        return self._sb3(plan)

    def _sb3(self, plan: Plan) -> Found | None:
        if not peers.has_sb3():
            Console().print("Stable-Baselines3 is not installed: its measurement is left out.", style="yellow")
            return None
        from damper.bench.sb3 import measure_overhead

        rows = []
        for backbone in self.backbones:
            for method in self.methods or ("damper",):
                updates = max(1, plan.iterations // self.rounds)
                how: dict[str, Any] = {"show": False, "clock": self.clock, "device": self.device}
                made = measure_overhead(backbone, method, self.rounds, updates, **how)
                row = {"backbone": backbone.upper(), "method": method, "ms": made.ours_ms}
                rows.append({**row, "SB3's plain ms": made.plain_ms, "× SB3's plain": made.ratio})
        scope = (
            "SB3's own training step with its default networks, and our class's: sampling, targets and log included."
        )
        record = self.how.record() | plan.record() | {"mode": "eager"}
        return Found("sb3", "Our SB3 classes beside SB3's", scope, rows, ("ms",), record)
