"""The paper's claims, each computed from the records: holds, fails, or not yet enough data.

A claim is a conjunction of comparisons of means. A comparison is known when both cells have the paper's five seeds; one
that is false makes the claim fail even before the others are known. Where the paper uses a word ("large", "collapses",
"slightly"), the number that stands for it here is in the comparison's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from damper.experiments.grids import ABLATION_TASKS, ETAS, TABLE_METHODS, WEIGHTS
from damper.experiments.paper import TASKS, paper, title
from damper.experiments.timings import Timing
from damper.report.cells import Cell, Setup
from damper.report.statistics import difference

ENOUGH = 5
SMOOTHERS = tuple(method for method in TABLE_METHODS if method != "plain")
RIVALS = tuple(method for method in SMOOTHERS if method != "damper")
LOWEST = {"td3": ("LunarLander", "Ant", "Hopper", "Walker"), "sac": ("LunarLander", "Reacher", "Ant", "Walker")}
BEATEN = {
    "Ant": RIVALS,
    "LunarLander": ("grad-caps", "asap", "l2c2", "pave"),
    "Hopper": ("caps", "asap", "l2c2", "pave"),
    "Pendulum": ("asap", "l2c2"),
}


class Check(NamedTuple):
    """One comparison: what it says with its numbers, and whether it is so (None: not yet known)."""

    text: str
    ok: bool | None


class Verdict(NamedTuple):
    """A claim of the paper and what the records say about it."""

    id: str
    text: str
    verdict: str
    checks: list[Check]


Checks = Iterator[Check]


def verdicts(setup: Setup, timings: Sequence[Timing] = ()) -> list[Verdict]:
    """Every claim of the paper, judged by one setup's records."""
    judges: dict[str, Callable[[], Checks]] = {
        "lower-sm-all": lambda: _lower_everywhere(setup),
        "lowest-sm-eight": lambda: _lowest(setup),
        "td3-lunar-both": lambda: _lunar(setup),
        "td3-hopper-walker-tradeoff": lambda: _large_reduction(setup),
        "sac-best-return": lambda: _best_return(setup),
        "sac-ant-walker-tradeoff": lambda: _sac_tradeoff(setup),
        "ablation-return": lambda: _ablation(setup),
        "sum-collapses": lambda: _collapse(setup),
        "pegrad": lambda: _pegrad(setup),
        "scalarization-five": lambda: _below_all_weights(setup),
        "scalarization-strong": lambda: _strong_weight(setup),
        "eta-monotone": lambda: _eta(setup),
        "cost": lambda: _cost(timings),
    }
    out = []
    for claim in paper()["claims"]:
        checks = list(judges[claim["id"]]())
        out.append(Verdict(claim["id"], claim["text"], judge(checks), checks))
    return out


def judge(checks: Sequence[Check]) -> str:
    """All true: holds; one false: fails; otherwise not enough data."""
    if any(check.ok is False for check in checks):
        return "fails"
    return "holds" if checks and all(check.ok for check in checks) else "not enough data"


# --- comparisons ------------------------------------------------------------------------------------------------


def below(ours: Cell | None, theirs: Cell | None, measure: str, where: str, names: tuple[str, str]) -> Check:
    """Our mean is below theirs."""
    if not _enough(ours, theirs) or ours is None or theirs is None:
        return Check(f"{where}: {names[0]} below {names[1]}, not yet measured", None)
    x, y = ours.mean(measure), theirs.mean(measure)
    gap, interval = difference(ours.means(measure), theirs.means(measure), f"{where}/{measure}/{names}")
    bounds = f", 95 % {_number(interval.low)} to {_number(interval.high)}" if interval else ""
    text = f"{where}: {names[0]} {_number(x)}, {names[1]} {_number(y)} (difference {_number(gap)}{bounds})"
    return Check(text, x < y)


def _enough(*cells: Cell | None) -> bool:
    """Whether all cells are there with enough seeds; a seed without the value does not count."""
    return all(cell is not None and len(cell.means("return")) >= ENOUGH for cell in cells)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}".replace("-", "−")


def _at(setup: Setup, backbone: str, task: str, method: str, **changed: float) -> Cell | None:
    return setup.find(backbone, task, method, **changed)


def _pair(setup: Setup, backbone: str, task: str, low: str, high: str, measure: str) -> Check:
    """``low``'s mean is below ``high``'s."""
    where = f"{backbone.upper()} {task} {'sm' if measure == 'smoothness' else 'return'}"
    cells = (_at(setup, backbone, task, low), _at(setup, backbone, task, high))
    return below(*cells, measure, where, (title(low, backbone), title(high, backbone)))


def _extreme(setup: Setup, backbone: str, task: str, measure: str, methods: Sequence[str], lowest: bool) -> Check:
    """DAMPER's mean is the lowest (highest) of the methods'."""
    what = f"{backbone.upper()} {task}: {'lowest sm' if lowest else 'highest return'}"
    cells = {method: _at(setup, backbone, task, method) for method in methods}
    known = {m: cell.mean(measure) for m, cell in cells.items() if cell is not None and _enough(cell)}
    sign = 1 if lowest else -1
    if "damper" not in known:
        return Check(f"{what}, not yet measured", None)
    ranked = sorted(known, key=lambda method: sign * known[method])
    named = [f"{title(method, backbone)} {_number(known[method])}" for method in ranked]
    if ranked[0] != "damper":
        return Check(f"{what}: {named[0]}, before {named[ranked.index('damper')]}", False)
    text = f"{what}: {named[0]}" + (f", before {named[1]}" if len(named) > 1 else "")
    missing = [title(method, backbone) for method in methods if method not in known]
    return Check(text + (f"; not yet measured: {', '.join(missing)}" if missing else ""), None if missing else True)


# --- claims -----------------------------------------------------------------------------------------------------


def _lower_everywhere(setup: Setup) -> Checks:
    for backbone in ("td3", "sac"):
        for task in TASKS:
            yield _pair(setup, backbone, task, "damper", "plain", "smoothness")


def _lowest(setup: Setup) -> Checks:
    for backbone, tasks in LOWEST.items():
        for task in tasks:
            yield _extreme(setup, backbone, task, "smoothness", TABLE_METHODS, lowest=True)


def _lunar(setup: Setup) -> Checks:
    yield _pair(setup, "td3", "LunarLander", "plain", "damper", "return")
    yield _pair(setup, "td3", "LunarLander", "damper", "plain", "smoothness")


def _large_reduction(setup: Setup) -> Checks:
    for task in ("Hopper", "Walker"):
        yield _share(setup, task, "damper", "plain", "smoothness", 0.5, "large: at most half of")
        yield _pair(setup, "td3", task, "damper", "plain", "return")


def _share(setup: Setup, task: str, ours: str, theirs: str, measure: str, share: float, words: str) -> Check:
    """Our mean is at most a share of theirs (TD3)."""
    a, b = _at(setup, "td3", task, ours), _at(setup, "td3", task, theirs)
    what = f"TD3 {task} {'sm' if measure == 'smoothness' else 'return'}"
    names = title(ours, "td3"), title(theirs, "td3")
    if not _enough(a, b) or a is None or b is None:
        return Check(f"{what}: {names[0]} {words} {names[1]}'s, not yet measured", None)
    x, y = a.mean(measure), b.mean(measure)
    text = f"{what}: {names[0]} {_number(x)} is {x / y:.0%} of {names[1]}'s {_number(y)} ({words} it)"
    return Check(text, x <= share * y)


def _best_return(setup: Setup) -> Checks:
    for task in ("LunarLander", "Hopper"):
        yield _extreme(setup, "sac", task, "return", TABLE_METHODS, lowest=False)


def _sac_tradeoff(setup: Setup) -> Checks:
    for task in ("Ant", "Walker"):
        yield _extreme(setup, "sac", task, "smoothness", TABLE_METHODS, lowest=True)
        yield _pair(setup, "sac", task, "damper", "plain", "return")


def _ablation(setup: Setup) -> Checks:
    methods = ("damper", "unconditional-projection", "unconditional-sum")
    for task in ABLATION_TASKS:
        yield _extreme(setup, "td3", task, "return", methods, lowest=False)


def _collapse(setup: Setup) -> Checks:
    yield _share(setup, "Hopper", "unconditional-sum", "damper", "return", 0.25, "collapses: at most a quarter of")
    for other in ("damper", "unconditional-projection"):
        yield _pair(setup, "td3", "Hopper", "unconditional-sum", other, "smoothness")


def _pegrad(setup: Setup) -> Checks:
    for task in ABLATION_TASKS:
        yield _share(setup, task, "damper", "pegrad", "smoothness", 0.51, "49 % lower: at most 51 % of")
    for task in ("LunarLander", "Hopper"):
        yield _pair(setup, "td3", task, "pegrad", "damper", "return")
    yield _pair(setup, "td3", "Walker", "damper", "pegrad", "return")


def _weights(setup: Setup, task: str) -> dict[float, Cell]:
    return {weight: cell for weight, cell in setup.sweep(task).items() if _enough(cell)}


def _below_all_weights(setup: Setup) -> Checks:
    for task in TASKS:
        ours, sweep = _at(setup, "td3", task, "damper"), _weights(setup, task)
        what = f"TD3 {task} sm"
        if ours is None or not _enough(ours) or not sweep:
            yield Check(f"{what}: DAMPER against {len(WEIGHTS)} weights, {len(sweep)} measured so far", None)
            continue
        best = min(sweep, key=lambda weight: sweep[weight].mean("smoothness"))
        damper, smoothest = ours.mean("smoothness"), sweep[best].mean("smoothness")
        exception = task == "Reacher"
        # One smoother weight settles it; that there is none takes them all.
        whole = (not exception) if len(sweep) == len(WEIGHTS) else None
        ok = whole if damper < smoothest else exception
        note = ("; the exception" if exception else "") + (
            "" if whole is not None else f"; of {len(sweep)} weights so far"
        )
        yield Check(f"{what}: DAMPER {_number(damper)}, smoothest weight {best:g} {_number(smoothest)}{note}", ok)


def _strong_weight(setup: Setup) -> Checks:
    for task, rivals in BEATEN.items():
        cells = {rival: _at(setup, "td3", task, rival) for rival in rivals}
        sweep, words = _weights(setup, task), ", ".join(title(rival) for rival in rivals)
        what = f"TD3 {task}: some weight beats {words} in both measures"
        if not _enough(*cells.values()) or not sweep:
            yield Check(f"{what}, not yet measured", None)
            continue
        highest = max(cell.mean("return") for cell in cells.values() if cell)
        lowest = min(cell.mean("smoothness") for cell in cells.values() if cell)
        winners = [w for w, c in sweep.items() if c.mean("return") > highest and c.mean("smoothness") < lowest]
        shown = ", ".join(f"{weight:g}" for weight in winners) or "none"
        done = bool(winners) or (False if len(sweep) == len(WEIGHTS) else None)
        yield Check(f"{what} (return above {_number(highest)}, sm below {_number(lowest)}): {shown}", done)


def _eta(setup: Setup) -> Checks:
    for task in ABLATION_TASKS:
        cells = [_at(setup, "td3", task, "damper", eta=eta) for eta in ETAS]
        if not _enough(*cells):
            there = sum(_enough(cell) for cell in cells)
            yield Check(f"TD3 {task}: sm over η, {there} of {len(ETAS)} values measured", None)
            continue
        sm = [cell.mean("smoothness") for cell in cells if cell]
        row = ", ".join(f"{eta:g}: {_number(value)}" for eta, value in zip(ETAS, sm, strict=True))
        if task == "Walker":
            yield Check(f"TD3 Walker: a bump at η = 0.6 ({row})", sm[3] > sm[2] and sm[3] > sm[4])
        else:
            yield Check(f"TD3 {task}: falling ({row})", all(b < a for a, b in pairwise(sm)))
        yield Check(f"TD3 {task}: lowest at η = 1", min(sm) == sm[-1])


def _cost(timings: Sequence[Timing]) -> Checks:
    printed = paper()["update_time_ms"]["DAMPER"]
    for backbone in ("td3", "sac"):
        times = cost_table(timings, backbone)
        if not set(TABLE_METHODS) <= set(times):
            yield Check(
                f"{backbone.upper()}: update times, {len(times)} of {len(TABLE_METHODS)} methods measured", None
            )
            continue
        ratio, most = times["damper"] / times["plain"], printed[backbone]["ratio"]
        yield Check(
            f"{backbone.upper()}: DAMPER costs {ratio:.2f}× plain (the paper {most:.2f}×, or less)", ratio <= most
        )
        cheaper = [method for method in RIVALS if times[method] < times["damper"]]
        allowed = ["grad-caps"] if backbone == "td3" else []
        names = ", ".join(title(method) for method in cheaper) or "none"
        yield Check(f"{backbone.upper()}: smoothing methods cheaper than DAMPER: {names}", set(cheaper) <= set(allowed))


def cost_table(timings: Sequence[Timing], backbone: str) -> dict[str, float]:
    """Milliseconds by method, from the setting in which most of the table's methods were timed."""
    settings: dict[str, dict[str, float]] = {}
    for timing in timings:
        if timing.backbone == backbone:
            settings.setdefault(timing.setting, {})[timing.method] = timing.milliseconds
    return max(settings.values(), key=lambda row: len(set(row) & set(TABLE_METHODS)), default={})
