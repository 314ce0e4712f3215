"""The ``damper`` command: one typed dataclass per subcommand, help generated from it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import tyro
from rich.console import Console

from damper.cli.bench import Bench
from damper.cli.compare import Compare
from damper.cli.evaluate import Evaluate
from damper.cli.export import Export
from damper.cli.figures import Figures
from damper.cli.report import Report
from damper.cli.reproduce import Reproduce
from damper.cli.train import Train
from damper.errors import DamperError

Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Figures, tyro.conf.subcommand("figures")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a user's mistake ends with one sentence and exit code 2."""
    if not sys.flags.safe_path:
        sys.path.append(os.getcwd())  # where "myenvs:Mass-v0" looks for myenvs.py, also from the console script
    try:
        _run(arguments)
    except DamperError as error:
        Console(stderr=True).print(f"damper: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("damper: stopped; the same command goes on from the last checkpoint.")
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough: `damper --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _run(arguments: list[str] | None) -> None:
    command = tyro.cli(Command, prog="damper", description=__doc__, args=arguments, config=(tyro.conf.OmitArgPrefixes,))
    command.run()
    sys.stdout.flush()
