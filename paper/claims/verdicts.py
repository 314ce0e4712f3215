"""What the records say about each of the paper's claims: the conjunction of its comparisons."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from paper.claims.comparisons import NOT_JUDGED, OPEN, Check, Evidence, conjunction
from paper.claims.policy_claims import CLAIMS, NOTES, ONE_ETA_UNTRAINED
from paper.claims.time_claims import TIME_CLAIMS
from paper.experiments.printed import paper
from paper.experiments.timings import Timing
from paper.statistics.cells import Setup

Source = TypeVar("Source")


class Verdict(NamedTuple):
    """A claim, what the records say about it, and a note that puts a word into proportion."""

    id: str
    text: str
    verdict: str
    checks: list[Check]
    note: str = ""

    @property
    def known(self) -> list[Check]:
        """The comparisons that there is enough data for."""
        return [check for check in self.checks if check.verdict not in (OPEN, NOT_JUDGED)]


@functools.cache
def verdicts(setup: Setup, eta: float | None = None) -> list[Verdict]:
    """Every claim about policies, judged by one setup's records, at the paper's η or another."""
    evidence = Evidence(setup, eta)
    judged = [_unless_untrained(verdict, eta) for verdict in _judge(CLAIMS, evidence)]
    return [v._replace(note=NOTES[v.id](evidence)) if v.id in NOTES else v for v in judged]


def _unless_untrained(verdict: Verdict, eta: float | None) -> Verdict:
    """What no experiment trains at one η is not waited for."""
    if eta is None or verdict.verdict != OPEN or verdict.id not in ONE_ETA_UNTRAINED:
        return verdict
    text = f"no experiment trains these ablations with η = {eta:g} on every task"
    return verdict._replace(verdict=NOT_JUDGED, checks=[Check(text, NOT_JUDGED)])


def time_verdicts(timings: Sequence[Timing]) -> list[Verdict]:
    """The claims about update times."""
    return _judge(TIME_CLAIMS, timings)


def _judge(
    claims: Mapping[str, Callable[[Source], Iterator[Check]]], evidence: Source
) -> list[Verdict]:
    """The claims' verdicts, in the order in which ``printed.json`` lists them."""
    texts = {claim["id"]: claim["text"] for claim in paper()["claims"]}
    checks = {name: list(claims[name](evidence)) for name in texts if name in claims}
    return [
        Verdict(name, texts[name], conjunction(c.verdict for c in claim_checks), claim_checks)
        for name, claim_checks in checks.items()
    ]
