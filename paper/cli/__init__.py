"""``python -m paper``: a command's options are in ``options``, what it does beside them."""

from __future__ import annotations

from damper.cli import Program
from damper.cli import main as run_program

PAPER = Program(
    "python -m paper",
    "paper.cli",
    {
        "reproduce": "Train what is missing of the paper's tables and figures, keep the records.",
        "fold": "Move new records from the store's spool into its JSONL files.",
        "report": "Make tables, figures and a results page from the records.",
        "figures": "Draw the rule and its theory.",
        "bench": "Measure speed.",
    },
    "Reproduce the paper's experiments and report on their records; in a checkout of damper.",
    "python -m paper reproduce --list shows the experiments; python -m paper COMMAND --help "
    "describes a command's options.",
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    run_program(arguments, PAPER)
