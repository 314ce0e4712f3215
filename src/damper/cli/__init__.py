"""The ``damper`` command: options are typed data in ``cli/options``, actions are in ``cli``.

Both are imported only when needed, so that help, ``--version`` and a mistyped command do not wait
for torch.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

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
}


class Program(NamedTuple):
    """A command line: its name, the package of its commands, and what its help says."""

    name: str
    package: str
    commands: Mapping[str, str]
    summary: str
    hint: str

    @property
    def help(self) -> str:
        """What ``--help`` prints."""
        commands = "\n".join(f"  {name:<10} {text}" for name, text in self.commands.items())
        usage = f"usage: {self.name} [-h] [--version] COMMAND ..."
        return f"{usage}\n\n{self.summary}\n\ncommands:\n{commands}\n\n{self.hint}"


DAMPER = Program(
    "damper",
    "damper.cli",
    COMMANDS,
    "Train, compare and export policies whose actions do not chatter.",
    "damper compare Pendulum-v1 --steps 10000 is a first try; damper COMMAND --help describes a "
    "command's options.",
)


def main(arguments: list[str] | None = None, program: Program = DAMPER) -> None:
    """Run the command; a user's mistake ends with one sentence and exit code 2."""
    try:
        if not sys.flags.safe_path:
            # "myenvs:Mass-v0" finds myenvs.py there, also from the script.
            sys.path.append(_working_directory())
        with _warnings_without_source(program):
            _run(program, *(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except DamperError as error:
        _stop(str(error), 2)
    except KeyboardInterrupt as error:
        # Training's message says how to resume, its number which signal stopped it.
        _stop(str(error) or "stopped.", 128 + getattr(error, "number", signal.SIGINT))
    except BrokenPipeError:  # the reader closed the pipe: `damper --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.filename is None:
            raise
        _stop(f"{error.filename}: {error.strerror}.", 2)


@contextmanager
def _warnings_without_source(program: Program) -> Iterator[None]:
    """Print our own warnings as one sentence, without the line of code."""
    usual, names = warnings.formatwarning, {"damper", program.package.partition(".")[0]}
    ours = tuple(f"{os.path.dirname(str(sys.modules[name].__file__))}{os.sep}" for name in names)

    def format_warning(message: Any, category: type[Warning], filename: str, *place: Any) -> str:
        if filename.startswith(ours):
            return f"damper: {message}\n"
        return usual(message, category, filename, *place)

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


def _run(program: Program, name: str = "--help", *arguments: str) -> None:
    if name in ("-h", "--help"):
        print(program.help)
    elif name == "--version":
        print(f"damper {__version__}")
    elif name in program.commands:
        _run_command(program, name, arguments)
    else:
        names = ", ".join(program.commands)
        hint = did_you_mean(name, program.commands, f"{program.name} --help describes them.")
        raise DamperError(f"the command must be one of {names}, but {name!r} was given: {hint}")


def _run_command(program: Program, name: str, arguments: tuple[str, ...]) -> None:
    from damper.cli.options import parse

    kind = getattr(import_module(f"{program.package}.options.{name}"), name.capitalize())
    command = f"{program.name} {name}"
    options = parse(kind, command, arguments)
    try:
        if name in ("train", "compare"):
            _check_env(options.env, options.engine.backend)
        import_module(f"{program.package}.{name}").run(options)
    except MissingExtraError:
        raise
    except DamperError as error:
        raise DamperError(f"{error}\nSee {command} --help.") from error


def _check_env(env: str, backend: str | None) -> None:
    """Raise for an id that Gymnasium does not know, before importing torch, which takes seconds."""
    from damper.engine.envs.gymnasium_pool import check_registered, import_module_of

    if ":" in env:  # module:Id-v0, whose module may register methods too
        import_module_of(env)
    elif backend != "envpool":
        check_registered(env)


def _stop(sentence: str, code: int) -> NoReturn:
    """Print the sentence on stderr and exit."""
    from rich.console import Console

    console = Console(stderr=True, style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(f"damper: {sentence}")
    sys.exit(code)
