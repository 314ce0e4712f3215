"""The paper's claims and their verdicts in words: for the results page, and in full for the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from damper.experiments.paper_experiments import ONE_ETA
from damper.experiments.timings import Timing
from damper.report.claims.comparisons import (
    BETTER,
    CONSTANT,
    FAILS,
    HOLDS,
    LEANS,
    LEANS_AGAINST,
    NOT_JUDGED,
    OPEN,
    VERDICTS,
    claim_level,
)
from damper.report.claims.verdicts import Verdict, time_verdicts, verdicts
from damper.report.statistics.cells import Setup
from damper.report.statistics.numbers import percent
from damper.report.tables.markup import markdown_table

UNKNOWN = (OPEN, NOT_JUDGED)


def claims_section(main: Sequence[Setup], timings: Sequence[Timing]) -> Iterator[str]:
    """The claims that have a verdict, with what decided it, and how many wait for records."""
    judged = judge_all(main)
    yield "## The paper's claims\n"
    yield (
        f"{_waiting(*next(iter(judged.items())))} About time there are others: {_tally(time_verdicts(timings))} "
        "([update times](results/tables.md#update-times)). What *holds* or *fails* is decided beyond the noise; a "
        "claim that *leans*, for or against, is not, and five seeds seldom decide one ([all words, and why]"
        "(statistics.md#verdicts)).\n"
    )
    yield from _decided(judged)


MEANINGS = {
    HOLDS: "every gap has the claimed sign, every interval excludes zero",
    BETTER: "the paper concedes a weakness, and the mean is on the good side, if only within the noise",
    LEANS: "the means agree with the claim, an interval includes zero",
    LEANS_AGAINST: "a mean contradicts it, the interval still allows it",
    CONSTANT: "it compares smoothness or how weak a gradient is, and most agents of one side hold one action",
    FAILS: "a mean contradicts it, and the interval does not allow it",
    OPEN: "a comparison lacks five seeds, and none has failed",
    NOT_JUDGED: "it takes agents that no experiment trains",
}


def legend() -> str:
    """What the words mean."""
    return " ".join(f"*{word.capitalize()}*: {MEANINGS[word]}." for word in VERDICTS)


def caution(link: str = "") -> str:
    """How much a word is worth; ``link``: to the page that tells more."""
    more = f" ([by how much]({link}))" if link else ""
    return (
        f"Each interval has {percent(claim_level(), 1)}. If seeds were normal, then with 95 % confidence every claim "
        "marked *holds* in a column is true; with lopsided cells, or where some seeds fail, the confidence is "
        f"less{more}. With five seeds such an interval is about twice as wide as at 95 %, and would decide an effect "
        "of two standard deviations in about one case of five: a lean is no evidence."
    )


def judge_all(main: Sequence[Setup]) -> dict[str, list[Verdict]]:
    """Every claim, judged by each protocol's records at the paper's η and at one η everywhere."""
    judged = {}
    for setup in main:
        judged[f"`{setup.protocol}`"] = verdicts(setup)
        judged[f"`{setup.protocol}` with η = {ONE_ETA:g}"] = verdicts(setup, ONE_ETA)
    return judged


def settled(judged: Mapping[str, Sequence[Verdict]]) -> str:
    """How many claims have a verdict beyond the noise, for each way of judging: each is corrected alone."""
    parts, some = [], False
    for name, own in judged.items():
        counts = {
            "held": sum(verdict.verdict == HOLDS for verdict in own),
            "failed": sum(verdict.verdict == FAILS for verdict in own),
        }
        decided = " and ".join(f"{count} {word}" for word, count in counts.items() if count)
        parts.append(f"{name}: {decided or 'none'}")
        some = some or bool(decided)
    claims, first = len(next(iter(judged.values()))), next(iter(judged))
    if not some:
        return (
            f"Of {claims} claims about trained policies none is decided beyond the noise, under any protocol. "
            f"By {first}: {_tally(judged[first])}."
        )
    return f"Of {claims} claims about trained policies, decided beyond the noise: {'; '.join(parts)}."


def _waiting(name: str, judged: Sequence[Verdict]) -> str:
    """How many claims wait for records."""
    waiting = sum(verdict.verdict == OPEN for verdict in judged)
    some = f"{waiting} of {len(judged)} claims about trained policies wait{'s' * (waiting == 1)}"
    return (
        f"Under {name} {some if waiting else 'no claim about trained policies waits'} for records; "
        "[the tables](results/tables.md) have what is known of each."
    )


def _decided(judged: Mapping[str, Sequence[Verdict]]) -> Iterator[str]:
    """The claims that some records decide, with the comparison that decided the first of the verdicts."""
    shown = {name: own for name, own in judged.items() if any(verdict.verdict not in UNKNOWN for verdict in own)}
    rows = []
    for own in zip(*shown.values(), strict=True):
        first = next((verdict for verdict in own if verdict.verdict not in UNKNOWN), None)
        if first is not None:
            words = ["–" if verdict.verdict == OPEN else verdict_text(verdict) for verdict in own]
            rows.append([first.text, *words, _by(first) + _note(first)])
    if rows:
        yield "Claims with a verdict, and what decided the first one of the row ([all](results/tables.md)):\n"
        header = ["claim", *shown, "deciding comparison"]
        yield markdown_table(header, [*rows, ["**all**", *map(_tally, shown.values()), ""]])


def _by(verdict: Verdict) -> str:
    """The first comparison that decided a verdict, with its numbers, and how many others did."""
    first, *others = [check.text for check in verdict.checks if check.verdict == verdict.verdict]
    return first + (f" (and {len(others)} more)" if others else "")


def claims_table(judged: Mapping[str, Sequence[Verdict]]) -> str:
    """Claims with their verdicts, one column per way of judging, and how many have each verdict."""
    claims = next(iter(judged.values()))
    rows = [
        [claim.text + _note(claim), *(verdict_text(own[i]) for own in judged.values())]
        for i, claim in enumerate(claims)
    ]
    return markdown_table(["claim", *judged], [*rows, ["**together**", *map(_tally, judged.values())]])


def _tally(judged: Sequence[Verdict]) -> str:
    return _counts(verdict.verdict for verdict in judged)


def verdict_text(verdict: Verdict) -> str:
    """A verdict as the tables show it."""
    if verdict.verdict not in UNKNOWN:
        return f"**{verdict.verdict}**"
    return verdict.verdict + _so_far(verdict)


def _so_far(verdict: Verdict) -> str:
    known = _counts(check.verdict for check in verdict.known)
    return f" (so far, of {len(verdict.checks)} comparisons: {known})" if known else ""


def _note(verdict: Verdict) -> str:
    """What a claim's word does not say, below it."""
    return f"<br><small>{verdict.note}.</small>" if verdict.note else ""


def _counts(words: Iterable[str]) -> str:
    """How many there are of each word."""
    found = list(words)
    return ", ".join(f"{found.count(word)} {word}" for word in VERDICTS if word in found)


def comparisons_list(judged: Sequence[Verdict]) -> str:
    """Every comparison that is known, claim by claim, those that decided the claim first."""
    lines = []
    for verdict in judged:
        lines += [f"- {verdict.text}: {verdict_text(verdict)}"] if verdict.known else []
        known = sorted(verdict.known, key=lambda check: check.verdict != verdict.verdict)
        lines += [f"    - {check.verdict}: {check.text}" for check in known]
    return "\n".join(lines) + "\n" if lines else ""
