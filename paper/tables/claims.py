"""Tables of the paper's claims and their verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from damper.intervals import percent
from damper.tables import markdown_table
from damper.terminal import counted
from paper.claims.comparisons import (
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
from paper.claims.verdicts import Verdict, verdicts
from paper.experiments.catalogue import ONE_ETA
from paper.statistics.cells import Setup

UNKNOWN = (OPEN, NOT_JUDGED)


MEANINGS = {
    HOLDS: "every mean is on the claimed side, and every interval excludes zero",
    BETTER: "the paper concedes a weakness, but the mean is on the good side, if only within the "
    "noise",
    LEANS: "the means agree with the claim, but an interval includes zero",
    LEANS_AGAINST: "a mean contradicts the claim, but its interval still allows it",
    CONSTANT: "it compares smoothness, or how weak a gradient is, and most agents of one side hold "
    "one action",
    FAILS: "a mean contradicts the claim, and its interval does not allow it",
    OPEN: "a comparison lacks five seeds, and none has failed",
    NOT_JUDGED: "it needs agents that no experiment trains",
}


def caution(link: str = "") -> str:
    """How much a verdict is worth; ``link``: to the page that tells more."""
    more = f" ([by how much]({link}))" if link else ""
    return (
        f"Each interval has {percent(claim_level(), 1)} confidence. If seeds were normally "
        "distributed, all claims marked *holds* in a column would be true together with 95 % "
        "confidence; where the seeds' distribution is skewed or some seeds fail, the confidence is "
        f"lower{more}. With five seeds such an interval is about twice as wide as at 95 %, and "
        "decides an effect of two standard deviations in about one case of five. So a lean is no "
        "evidence."
    )


def judge_all(main: Sequence[Setup]) -> dict[str, list[Verdict]]:
    """Every claim, judged by each protocol's records at the paper's η and at one η everywhere."""
    judged = {}
    for setup in main:
        judged[f"`{setup.protocol}`"] = verdicts(setup)
        judged[f"`{setup.protocol}` with η = {ONE_ETA:g}"] = verdicts(setup, ONE_ETA)
    return judged


def decided_table(main: Sequence[Setup]) -> str:
    """The claims that some records decide."""
    judged = judge_all(main).items()
    shown = {
        name: column for name, column in judged if any(v.verdict not in UNKNOWN for v in column)
    }
    rows = []
    for row in zip(*shown.values(), strict=True):
        first = next((verdict for verdict in row if verdict.verdict not in UNKNOWN), None)
        if first is not None:
            words = ["–" if verdict.verdict == OPEN else verdict_text(verdict) for verdict in row]
            rows.append([first.text, *words, _by(first) + _note(first)])
    header = ["claim", *shown, "comparison behind the first verdict"]
    return markdown_table(header, rows) if rows else "No claim has a verdict yet.\n"


def _by(verdict: Verdict) -> str:
    """The first comparison that decided a verdict, with its numbers, and how many others did."""
    first, *others = [check.text for check in verdict.checks if check.verdict == verdict.verdict]
    return first + (f" (and {len(others)} more)" if others else "")


def claims_table(judged: Mapping[str, Sequence[Verdict]]) -> str:
    """Claims with their verdicts, one column per way of judging, and how many have each verdict."""
    claims = next(iter(judged.values()))
    rows = [
        [claim.text + _note(claim), *(verdict_text(column[i]) for column in judged.values())]
        for i, claim in enumerate(claims)
    ]
    tallies = (_counts(verdict.verdict for verdict in column) for column in judged.values())
    return markdown_table(["claim", *judged], [*rows, ["**all claims**", *tallies]])


def verdict_text(verdict: Verdict) -> str:
    """A verdict as the tables show it."""
    if verdict.verdict not in UNKNOWN:
        return f"**{verdict.verdict}**"
    counts = _counts(check.verdict for check in verdict.known)
    of = f"of {counted(len(verdict.checks), 'comparison')}"
    return verdict.verdict + (f" (so far, {of}: {counts})" if counts else "")


def _note(verdict: Verdict) -> str:
    """What a claim's word does not say, below it."""
    return f"<br><small>{verdict.note}.</small>" if verdict.note else ""


def _counts(verdict_words: Iterable[str]) -> str:
    """How many there are of each word."""
    listed = list(verdict_words)
    return ", ".join(f"{word} {listed.count(word)}" for word in VERDICTS if word in listed)


def comparisons_list(judged: Sequence[Verdict]) -> str:
    """Every comparison that is known, claim by claim, those that decided the claim first."""
    lines = []
    for verdict in judged:
        lines += [f"- {verdict.text}: {verdict_text(verdict)}"] if verdict.known else []
        checks = sorted(verdict.known, key=lambda check: check.verdict != verdict.verdict)
        lines += [f"    - {check.verdict}: {check.text}" for check in checks]
    return "\n".join(lines) + "\n" if lines else ""
