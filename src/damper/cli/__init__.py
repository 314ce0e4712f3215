"""The ``damper`` command: a subcommand's options are typed data in ``cli/options``, its actions are in ``cli``.

Both are imported only when needed, so that help, ``--version`` and a mistyped command do not wait
for torch.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

from damper.errors import DamperError, MissingExtraError, did_you_mean
from damper.version import __version__

COMMANDS = {
    "train": "Train a smooth policy, or many seeds and settings at once.",
    "evaluate": "Evaluate a policy (a run, a policy file, an SB3 zip, an ONNX file): table, "
    "records, pictures.",
    "compare": "Train several methods on one task under the same conditions; show table and "
    "pictures.",
    "inspect": "Measure a recorded log of actions: is it the policy, or delay and gains?",
    "export": "Write a policy to a file that runs anywhere: ONNX or PyTorch.",
    "reproduce": "Train what is missing of the paper's tables and figures, and keep the records.",
    "report": "Make tables, figures and a results page from the records.",
    "figures": "Draw the rule and its theory.",
    "bench": "Measure speed.",
}
HELP = """usage: damper [-h] [--version] COMMAND ...

Train, compare and export policies whose actions do not chatter.

commands:
{commands}

damper compare Pendulum-v1 --steps 10000 is a first try; damper COMMAND --help describes a command's options.""".format(
    commands="\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; a user's mistake ends with one sentence and exit code 2."""
    try:
        if not sys.flags.safe_path:
            sys.path.append(
                _working_directory()
            )  # "myenvs:Mass-v0" finds myenvs.py there, also from the script
        with _warnings_without_source():
            _run(*(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except DamperError as error:
        _stop(str(error), 2)
    except (
        KeyboardInterrupt
    ) as error:  # training's message says how to resume, its number which signal stopped it
        _stop(str(error) or "stopped.", 128 + getattr(error, "number", signal.SIGINT))
    except BrokenPipeError:  # the reader closed the pipe: `damper --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            raise
        _stop(f"{error.filename}: {error.strerror}.", 2)


@contextmanager
def _warnings_without_source() -> Iterator[None]:
    """Print our own warnings as one sentence, without the line of code; other packages' stay as Python prints them."""
    usual, package = warnings.formatwarning, os.path.dirname(os.path.dirname(__file__))

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, *place: Any
    ) -> str:
        ours = filename.startswith(package + os.sep)
        return f"damper: {message}\n" if ours else usual(message, category, filename, *place)

    warnings.formatwarning = format_warning  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise DamperError(
            "the working directory must exist, but was deleted: change to another one."
        ) from error


def _run(name: str = "--help", *arguments: str) -> None:
    if name in ("-h", "--help"):
        print(HELP)
    elif name == "--version":
        print(f"damper {__version__}")
    elif name in COMMANDS:
        _run_command(name, arguments)
    else:
        hint = did_you_mean(name, COMMANDS, "damper --help describes them.")
        raise DamperError(
            f"the command must be one of {', '.join(COMMANDS)}, but {name!r} was given: {hint}"
        )


def _run_command(name: str, arguments: tuple[str, ...]) -> None:
    from damper.cli.options import parse

    kind = getattr(import_module(f"damper.cli.options.{name}"), name.capitalize())
    options = parse(kind, f"damper {name}", arguments)
    try:
        if name in ("train", "compare"):
            _check_env(options.env, options.engine.backend)
        import_module(f"damper.cli.{name}").run(options)
    except MissingExtraError:
        raise
    except DamperError as error:
        raise DamperError(f"{error}\nSee damper {name} --help.") from error


def _check_env(env: str, backend: str | None) -> None:
    """Raise for an id that Gymnasium does not know, before importing torch, which takes seconds.

    EnvPool's ids are not checked. The module of ``module:Id-v0`` is imported: it may register
    methods.
    """
    if backend != "envpool" or ":" in env:
        from damper.engine.envs.gymnasium_pool import check_registered, import_module_of

        import_module_of(env) if ":" in env else check_registered(env)


def _stop(sentence: str, code: int) -> NoReturn:
    """Print the sentence on stderr and exit."""
    from rich.console import Console

    Console(stderr=True).print(
        f"damper: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True
    )
    sys.exit(code)
