"""What each command takes, as typed data; no import of torch, so that help comes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from damper.errors import DamperError, did_you_mean
from damper.protocols import PROTOCOLS

T = TypeVar("T")


class _LeftOut(tuple[Any, ...]):
    """No values, because the option was left out; an option given without any is a mistake."""


LEFT_OUT = _LeftOut()
REGISTRY = ConstructorRegistry()


def _one_word(
    metavar: str, read: Callable[[str], T], is_instance: Callable[[Any], bool]
) -> PrimitiveConstructorSpec[T]:
    """How the parser reads an option of one word."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=is_instance,
        str_from_instance=lambda value: [str(value)],
    )


@REGISTRY.primitive_rule
def _integers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Integers as people write them: 1000000, 1_000_000, 1e6."""
    if info.type is not int:
        return None
    return _one_word("INT", integer, lambda value: isinstance(value, int))


def integer(word: str) -> int:
    """The whole number that a word stands for."""
    try:
        number = Decimal(word)
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or number != int(number):
        raise ValueError(f"must be a whole number such as 1000 or 1e6, but {word!r} was given")
    return int(number)


def one_of(*words: str) -> PrimitiveConstructorSpec[str]:
    """One of several words, or None where left out; a misspelt one is answered with the closest."""

    def read(word: str) -> str:
        if word not in words:
            hint = did_you_mean(word, words, "choose one of them.")
            raise ValueError(f"must be one of {', '.join(words)}, but {word!r} was given: {hint}")
        return word

    return _one_word(f"{{{','.join(words)}}}", read, lambda value: value in (None, *words))


def _number_or_schedule(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


_SCHEDULE = _one_word("FLOAT", _number_or_schedule, lambda value: isinstance(value, float | str))
Numbers = tuple[float, ...]
Schedules = tuple[Annotated[float | str, _SCHEDULE], ...]


def parse(kind: type[T], prog: str, arguments: Sequence[str]) -> T:
    """The options that a command was given; help and mistakes in them end the process."""
    _check_names(kind, prog, arguments)
    forms = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
    options = tyro.cli(kind, prog=prog, args=arguments, config=forms, registry=REGISTRY)
    _check_values(options)
    return options


def _check_names(kind: type, prog: str, arguments: Sequence[str]) -> None:
    """Refuse an unknown option before the parser, which would name a missing one alone."""
    options = {"--help", *_names(kind)}
    for word in arguments:
        name = word.partition("=")[0].replace("_", "-")
        is_option = name.startswith("--") and len(name) > 2 and not name.startswith("--tyro-")
        if is_option and name not in options:
            hint = did_you_mean(name, options, "check its spelling.")
            raise DamperError(f"{word} is not an option of {prog}: {hint}\nSee {prog} --help.")


def _names(kind: Any) -> Iterator[str]:
    """Every option of a command, and what else it is called."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        inner, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if is_dataclass(inner):
            yield from _names(inner)
            continue
        if tyro.conf.Positional in notes:
            continue
        flag = name.replace("_", "-")
        yield f"--{flag}"
        if bool in (inner, *get_args(inner)):
            yield f"--no-{flag}"
        for note in notes:
            yield from getattr(note, "aliases", None) or ()


def _check_values(options: Any) -> None:
    """Refuse an option without its values, as ``--eta $ETA`` where nothing set ETA."""
    for option in fields(options):
        value = getattr(options, option.name)
        if is_dataclass(value):
            _check_values(value)
        elif option.default is LEFT_OUT and value == () and value is not LEFT_OUT:
            flag = f"--{option.name.replace('_', '-')} must have at least one value"
            raise DamperError(f"{flag}, but none was given: leave it out for the default.")


def default(words: str, **more: Any) -> Any:
    """What holds where an option is left out, for its help; ``more`` as for ``tyro.conf.arg``."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {words})", **more)


PROTOCOL = f"{{{','.join(PROTOCOLS)}}}"
Source = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SOURCE")]]
SeedList = Annotated[tuple[int, ...], default("counted by --seeds", aliases=("--seed",))]


def given(*options: Any) -> dict[str, Any]:
    """What the user wrote, without what was left out."""
    written = {name: value for option in options for name, value in asdict(option).items()}
    return {name: value for name, value in written.items() if value is not None and value != ()}


def chosen_seeds(seeds: T, seed_list: tuple[int, ...], usual: T) -> T | tuple[int, ...]:
    """The seeds that ``--seed-list`` names, or how many; ``usual`` is the default number."""
    if seed_list and seeds not in (usual, len(seed_list)):
        what = "seeds must be left out when --seed names them"
        raise DamperError(f"{what}, but {seeds} was given too.")
    return seed_list or seeds
