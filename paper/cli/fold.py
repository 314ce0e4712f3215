"""``python -m paper fold``."""

from __future__ import annotations

from damper.terminal import counted, quoted, say
from paper.cli.options.fold import Fold
from paper.experiments.ppo_records import fold_ppo
from paper.experiments.store import Store


def run(options: Fold) -> None:
    """Move the spool's records and say how many."""
    count = Store(options.results).fold() + fold_ppo(options.results)
    say(f"{counted(count, 'record')} folded into {quoted(options.results)}")
