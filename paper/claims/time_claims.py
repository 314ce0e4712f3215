"""The paper's claims about update times, judged per machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from paper.claims.comparisons import BETTER, FAILS, HOLDS, LEANS, OPEN, REACHED_SHARE, Check
from paper.experiments.catalogue import BACKBONES, RIVALS, TABLE_METHODS
from paper.experiments.printed import title
from paper.experiments.timings import Timing, ratio_of_rounds

PAPER_OVERHEAD = {"td3": 0.448, "sac": 0.313}


class MethodTimes(NamedTuple):
    """The table's methods as timed on one machine, one way: milliseconds per round."""

    machine: str
    rounds: dict[str, Sequence[float]]


def _fullest(timings: Sequence[Timing], backbone: str) -> dict[str, MethodTimes]:
    """Per kind of device, the measurement of the most methods in turns."""
    by_device: dict[str, dict[str, MethodTimes]] = {}
    for timing in timings:
        if timing.backbone == backbone and timing.rounds:
            settings = by_device.setdefault(str(timing.how.get("device", "cpu")), {})
            times = settings.setdefault(timing.setting, MethodTimes(timing.machine, {}))
            times.rounds[timing.method] = timing.rounds
    return {
        device: max(settings.values(), key=lambda times: len(times.rounds))
        for device, settings in by_device.items()
    }


def _by_machine(
    timings: Sequence[Timing], backbone: str
) -> Iterator[tuple[str, MethodTimes | None]]:
    """GPU and CPU; None where not all the table's methods were timed together with their spread."""
    fullest = _fullest(timings, backbone)
    for device, kind in {"cuda": "GPU", "cpu": "CPU"}.items():
        times = fullest.get(device)
        if times is None:
            yield f"{backbone.upper()}, {kind}", None
            continue
        complete = set(TABLE_METHODS) <= set(times.rounds)
        in_turns = len({len(rounds) for rounds in times.rounds.values()}) == 1
        yield f"{backbone.upper()}, {times.machine}", times if complete and in_turns else None


def _cost(timings: Sequence[Timing]) -> Iterator[Check]:
    for backbone in BACKBONES:
        for place, times in _by_machine(timings, backbone):
            if times is None:
                words = "update times of all methods with their spread: not yet measured"
                yield Check(f"{place}: {words}", OPEN)
                continue
            for rival in RIVALS:
                dearer = backbone == "td3" and rival == "grad-caps"  # the paper's one exception
                expect, word = ("higher", "above") if dearer else ("lower", "below")
                words = f"DAMPER's time over {title(rival)}'s (claimed: {word} 1)"
                yield _ratio(f"{place}: {words}", times, rival, 1.0, expect, dearer)


def _overhead(timings: Sequence[Timing]) -> Iterator[Check]:
    for backbone, overhead in PAPER_OVERHEAD.items():
        most = 1 + overhead * (2 - REACHED_SHARE)
        for place, times in _by_machine(timings, backbone):
            words = (
                f"{place}: DAMPER's time over plain's (the paper's {1 + overhead:.3f}×, up to "
                f"{most:.2f}× counts)"
            )
            if times is None:
                yield Check(f"{words}: not yet measured with its spread", OPEN)
                continue
            check = _ratio(words, times, "plain", most, "lower")
            least = _ratio("", times, "plain", 1 + overhead * REACHED_SHARE, "lower")
            yield check._replace(verdict=BETTER) if least.verdict == HOLDS else check


def _ratio(
    words: str, times: MethodTimes, base: str, bound: float, expect: str, concession: bool = False
) -> Check:
    """DAMPER's time relative to another's, round by round."""
    low, middle, high = ratio_of_rounds(times.rounds["damper"], times.rounds[base])
    below, above = high < bound, low > bound
    agrees, contradicts = (below, above) if expect == "lower" else (above, below)
    verdict = HOLDS if agrees else (BETTER if concession else FAILS) if contradicts else LEANS
    tie = ", a tie within the spread" if verdict == LEANS else ""
    return Check(f"{words}: {middle:.3f}× [{low:.3f}, {high:.3f}]{tie}", verdict)


TIME_CLAIMS: dict[str, Callable[[Sequence[Timing]], Iterator[Check]]] = {
    "cost": _cost,
    "overhead": _overhead,
}
