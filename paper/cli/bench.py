"""``python -m paper bench``."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from typing import Any

import torch

from damper.engine.device.precision import check_tf32
from damper.engine.settings import find_device
from damper.errors import DamperError, MissingExtraError
from damper.files import check_folder
from damper.terminal import quoted, say, show
from paper.bench import peers
from paper.bench.end_to_end import end_to_end
from paper.bench.floor import floor
from paper.bench.interleaved_timing import Plan
from paper.bench.modes import in_modes, slower_modes
from paper.bench.result import Measurement, read
from paper.bench.scaling import scaling
from paper.bench.update_time import update_time, write_timings
from paper.bench.workloads import ExecutionMode, Subjects, random_transitions
from paper.cli.options.bench import PARTS, Bench
from paper.experiments.catalogue import TABLE_METHODS

PAIR = ("plain", "damper")


def run(options: Bench) -> None:
    """Measure, print and save."""
    if options.show:
        shown = map(read, options.show)
        print("\n".join(f"**{m.title}.** {m.scope}\n\n{m.markdown()}" for m in shown))
        return
    asked, options = options.device, replace(options, device=find_device(options.device))
    _check(options)
    if asked == "auto":
        say(f"Measuring on {options.device}; --device chooses another.")
    if options.threads:
        torch.set_num_threads(options.threads)
    for part in PARTS if options.what == "all" else (options.what,):
        _say_what_is_left_out(options, part)
        measurement = _measure(options, part)
        if measurement is not None:
            show(measurement.title, measurement.columns, measurement.cells)
            say(measurement.scope, "dim")
            for sentence in slower_modes(measurement):
                say(f"slower than a plainer mode: {sentence}", "yellow")
            for path in measurement.save(options.out, _command(options, part)):
                say(quoted(path))


def _check(options: Bench) -> None:
    check_folder("out", options.out)
    if options.results is not None:
        check_folder("results", options.results)
    check_tf32(options.device, bool(options.tf32))
    if options.clock == "processor" and options.device != "cpu":
        raise DamperError(
            "clock must be 'wall' on a GPU, but 'processor' was given: leave it out, or add "
            "--device cpu."
        )
    if options.mode and "graph" in options.mode and options.device == "cpu":
        raise DamperError(
            f"mode must be eager or compile on a CPU, but {options.mode!r} was given: leave it out."
        )
    if options.rounds < 1 or (options.iterations is not None and options.iterations < 1):
        raise DamperError(
            "iterations and rounds must be at least 1, but a smaller number was given."
        )
    if options.what != "sb3" and (theirs := set(options.backbones) - {"td3", "sac"}):
        raise DamperError(
            f"backbones must be td3 or sac here, but {' '.join(sorted(theirs))} was given: use "
            "python -m paper bench sb3."
        )
    if options.what in ("sb3", "peers") and not peers.has_sb3():
        cure = f'pip install "damper-rl[{options.what}]"'
        raise MissingExtraError(f"bench {options.what} needs Stable-Baselines3: {cure}.")


def _say_what_is_left_out(options: Bench, part: str) -> None:
    """Name the libraries that a measurement compares with and that are not installed."""
    missing = {}
    if part in ("update", "peers", "sb3") and not peers.has_sb3():
        missing["Stable-Baselines3"] = "sb3"
    if part == "peers" and options.device == "cpu" and not peers.has_sbx():
        missing["SBX"] = "peers"
    for library, extra in missing.items():
        cure = f'pip install "damper-rl[{extra}]"'
        say(f"{part} without {library}, which is not installed: {cure}.", "yellow")


def _modes(options: Bench) -> list[ExecutionMode]:
    """The modes to measure: the one asked for, otherwise on a GPU all that users may meet."""
    cpu = options.device == "cpu"
    modes = [options.mode] if options.mode else ["eager"] if cpu else ["graph", "compile-graph"]
    every_precision = [False] if cpu else [False, True]
    tf32 = every_precision if options.tf32 is None else [options.tf32]
    return [ExecutionMode(options.device, mode, precise) for precise in tf32 for mode in modes]


def _mode(options: Bench) -> ExecutionMode:
    """The mode for measurements that take one: the one asked for, or the default."""
    return next(mode for mode in reversed(_modes(options)) if mode.tf32 == bool(options.tf32))


def _command(options: Bench, part: str) -> str:
    """The command that measures this again, without output folders."""
    parts = ["python", "-m", "paper", "bench", part, "--device", options.device]
    for option in fields(options):
        value, flag = getattr(options, option.name), option.name.replace("_", "-")
        if option.name in ("what", "device", "out", "results", "show") or value == option.default:
            continue
        if isinstance(value, bool):
            parts.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            parts += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return shlex.join(parts)


def _measure(options: Bench, part: str) -> Measurement | None:
    cpu, methods = options.device == "cpu", options.methods or PAIR
    iterations = options.iterations or (100 if cpu else 1000)
    plan = Plan(iterations, options.rounds, options.clock, options.device)
    backbones, modes = options.backbones or ("td3", "sac"), _modes(options)
    if part == "sb3":
        return _sb3(options, plan)
    if part == "end-to-end":
        what = (backbones, methods, options.tasks, options.agents, options.steps)
        return end_to_end(_mode(options), *what, options.env_threads)
    subjects = Subjects(random_transitions(options.task), backbones, methods, options.sizes or (1,))
    if part == "peers":
        return peers.compare_implementations(subjects, _mode(options), plan)
    if part == "floor":
        return floor(subjects, _mode(options), plan)
    if part == "scaling":
        sizes = options.sizes or ((1, 5, 10, 35) if cpu else (1, 5, 35, 100))
        sized = replace(subjects, sizes=sizes)
        return in_modes(modes, lambda mode: scaling(sized, mode, plan))
    timed = replace(subjects, methods=options.methods or TABLE_METHODS)

    def measure(mode: ExecutionMode) -> Measurement:
        measurement, turns = update_time(timed, mode, plan)
        if options.results:
            write_timings(options.results, timed.data, measurement, turns, _command(options, part))
        return measurement

    return in_modes(modes, measure)


def _sb3(options: Bench, plan: Plan) -> Measurement | None:
    if not peers.has_sb3():
        return None
    from paper.bench.sb3 import measure_overhead

    rows = []
    for backbone in options.backbones or ("td3", "sac", "ppo"):
        for method in options.methods or ("damper",):
            updates = max(1, plan.iterations // plan.rounds)
            how: dict[str, Any] = {"clock": plan.clock, "device": plan.device}
            made = measure_overhead(backbone, method, plan.rounds, updates, **how)
            row = {"backbone": backbone.upper(), "method": method, "ms": made.ours_ms}
            rows.append({**row, "SB3's plain ms": made.plain_ms, "× SB3's plain": made.ratio})
    scope = (
        "SB3's own training step with its default networks, and our class's: sampling, targets "
        "and log included."
    )
    record = _mode(options).record() | plan.record() | {"mode": "eager"}
    return Measurement("sb3", "Our SB3 classes beside SB3's", scope, rows, ("ms",), record)
