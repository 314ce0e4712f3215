"""What each command takes, as typed data that imports no torch: help and mistakes in it are answered at once.

Here are the options that several commands share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from damper.errors import DamperError, did_you_mean
from damper.protocols import PROTOCOLS, SHORT_TASKS, protocol_settings
from damper.schedules import KINDS as SCHEDULE_KINDS

T = TypeVar("T")


class _LeftOut(tuple[Any, ...]):
    """No values, because the option was left out: an option given without any is a mistake, told apart by this."""


LEFT_OUT = _LeftOut()
REGISTRY = ConstructorRegistry()
METHODS_JSON = Path(__file__).with_name(
    "methods.json"
)  # of what needs torch, written by cli/method_help.py
METHOD_TEXTS = json.loads(METHODS_JSON.read_text(encoding="utf-8"))


@REGISTRY.primitive_rule
def _integers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Integers as people write them: 1000000, 1_000_000, 1e6."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: integer(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


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
    """One of several words; a misspelt one is answered with the closest."""

    def read(given: list[str]) -> str:
        (word,) = given
        if word not in words:
            hint = did_you_mean(word, words, "choose one of them.")
            raise ValueError(f"must be one of {', '.join(words)}, but {word!r} was given: {hint}")
        return word

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(words)}}}",
        instance_from_str=read,
        is_instance=lambda value: value in words,
        str_from_instance=lambda value: [value],
    )


def number_or_schedule(word: str) -> float | str:
    """The number that a word stands for, or the word: whether it is a schedule is found where settings are checked."""
    try:
        return float(word)
    except ValueError:
        return word


_NUMBER_OR_SCHEDULE: PrimitiveConstructorSpec[float | str] = PrimitiveConstructorSpec(
    nargs=1,
    metavar="FLOAT",
    instance_from_str=lambda words: number_or_schedule(words[0]),
    is_instance=lambda value: isinstance(value, float | str),
    str_from_instance=lambda value: [str(value)],
)
Numbers = tuple[float, ...]
Schedules = tuple[Annotated[float | str, _NUMBER_OR_SCHEDULE], ...]


def parse(kind: type[T], prog: str, arguments: Sequence[str]) -> T:
    """The options that a command was given; help and mistakes in them are shown, and end the process."""
    _check_names(kind, prog, arguments)
    forms = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
    options = tyro.cli(kind, prog=prog, args=arguments, config=forms, registry=REGISTRY)
    _check_values(options)
    return options


def _check_names(kind: type, prog: str, arguments: Sequence[str]) -> None:
    """Refuse an unknown option, also where something that is required is missing: the parser names that alone."""
    known = {"--help", *_names(kind)}
    for word in arguments:
        name = word.partition("=")[0].replace("_", "-")
        if (
            name.startswith("--")
            and len(name) > 2
            and not name.startswith("--tyro-")
            and name not in known
        ):
            hint = did_you_mean(name, known, "check its spelling.")
            raise DamperError(f"{word} is not an option of {prog}: {hint}\nSee {prog} --help.")


def _names(kind: Any) -> Iterator[str]:
    """Every option of a command, and what else it is called."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        inner, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if is_dataclass(inner):
            yield from _names(inner)
            continue
        flag = name.replace("_", "-")
        yield f"--{flag}"
        if bool in (inner, *get_args(inner)):
            yield f"--no-{flag}"
        for note in notes:
            yield from getattr(note, "aliases", None) or ()


def _check_values(options: Any) -> None:
    """Refuse an option without its values, as ``--eta $ETA`` where nothing set ETA: it is not the default."""
    for one in fields(options):
        value = getattr(options, one.name)
        if is_dataclass(value):
            _check_values(value)
        elif one.default is LEFT_OUT and value == () and value is not LEFT_OUT:
            flag = f"--{one.name.replace('_', '-')}"
            raise DamperError(
                f"{flag} must have at least one value, but none was given: leave it out for the "
                "default."
            )


def default(words: str, **more: Any) -> Any:
    """What happens where an option is left out, for its help; ``more`` as ``tyro.conf.arg`` takes it."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {words})", **more)


Backend = Literal["gymnasium", "envpool"] | None
BACKEND = "envpool on a GPU for tasks with a short name, else gymnasium"
ENVS: dict[str, Any] = {"aliases": ("--envs",)}  # its old name
PROTOCOL = f"{{{','.join(PROTOCOLS)}}}"  # which an option shows; the names of before are read too
Env = tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="ENV")]]
Source = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SOURCE")]]
Protocol = Annotated[
    str | None, default("the authors' settings, and seeds 0, 1, ...", metavar=PROTOCOL)
]
SeedList = Annotated[tuple[int, ...], default("counted by --seeds", aliases=("--seed",))]
Steps = Annotated[
    int | None,
    default("the paper's budget; required for other tasks", aliases=("--total-timesteps",)),
]


def listed(words: Sequence[str], last: str) -> str:
    """Words as a sentence has them: "silu, relu or tanh"."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else words[0]


SCHEDULES = listed([f"{kind}:START:END" for kind in SCHEDULE_KINDS], "and")


def published(name: str, **more: Any) -> Any:
    """The same for a setting of the protocols: its value in each, by backbone and task where it differs."""
    by_protocol = {protocol: _values(protocol, name) for protocol in ("authors", *PROTOCOLS)}
    others = [
        f"{own} with --protocol {p}"
        for p, own in by_protocol.items()
        if own != by_protocol["authors"]
    ]
    return default("; ".join([by_protocol["authors"], *others]), **more)


def _values(protocol: str, name: str) -> str:
    """A setting's value in a protocol, in words."""
    owners: dict[str, list[str]] = {}
    for backbone in ("td3", "sac"):
        usual, short = (
            protocol_settings(protocol, backbone, task).get(name) for task in (None, SHORT_TASKS[0])
        )
        for value, where in (
            (usual, backbone),
            (short, f"{backbone} on {' and '.join(SHORT_TASKS)}"),
        ):
            if value is not None and (where == backbone or value != usual):
                text = " ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
                owners.setdefault(text, []).append(where)
    if len(owners) == 1:
        return next(iter(owners))
    return ", ".join(f"{value} ({', '.join(where)})" for value, where in owners.items())


_LEARNING_RATE = f"Adam's step size; {SCHEDULES} follow the run's progress."
_ACTIVATION = f"Hidden layers' activation: {listed(METHOD_TEXTS['activations'], 'or')}."


@dataclass
class EngineOptions:
    """Settings of the algorithm and the engine, with Stable-Baselines3's names. Several values train one agent each."""

    learning_rate: Annotated[Schedules, published("learning_rate", help=_LEARNING_RATE)] = LEFT_OUT
    buffer_size: Annotated[int | None, published("buffer_size")] = None
    """Transitions kept per agent."""
    learning_starts: Annotated[int | None, published("learning_starts")] = None
    """Steps with random actions before learning."""
    batch_size: Annotated[int | None, published("batch_size")] = None
    """Transitions per gradient step."""
    tau: Annotated[Numbers, published("tau")] = LEFT_OUT
    """Polyak rate of the targets."""
    gamma: Annotated[Numbers, published("gamma")] = LEFT_OUT
    """Discount."""
    train_freq: Annotated[int | None, published("train_freq")] = None
    """Steps between rounds of gradient steps."""
    gradient_steps: Annotated[int | None, published("gradient_steps")] = None
    """Gradient steps per round."""
    policy_delay: Annotated[int | None, published("policy_delay")] = None
    """TD3: critic steps per actor step."""
    target_policy_noise: Annotated[Numbers, published("target_policy_noise")] = LEFT_OUT
    """TD3: noise on the target action."""
    target_noise_clip: Annotated[Numbers, published("target_noise_clip")] = LEFT_OUT
    """TD3: bound of that noise."""
    action_noise: Annotated[Numbers, published("action_noise")] = LEFT_OUT
    """TD3: exploration noise."""
    ent_coef: Annotated[tuple[str, ...], published("ent_coef")] = LEFT_OUT
    """SAC: the temperature, or "auto"."""
    net_arch: Annotated[tuple[int, ...], published("net_arch")] = LEFT_OUT
    """Sizes of the hidden layers."""
    activation: Annotated[str | None, published("activation", help=_ACTIVATION)] = None
    norm_obs: bool = False
    """Normalise observations by their running mean and variance, like VecNormalize."""
    device: Annotated[str | None, default("a GPU where there is one")] = None
    """Where to train, as in torch: cpu, cuda."""
    backend: Annotated[Backend, default(BACKEND, **ENVS)] = None
    """What steps the environments: Gymnasium, or EnvPool with C++ threads."""
    env_threads: Annotated[int | None, default("one per core; for a worker, its agents' share")] = (
        None
    )
    """EnvPool's threads."""
    compile: Annotated[
        bool | None, default("auto: on a GPU, if the run is long enough to gain from it")
    ] = None
    """Run the update through torch.compile."""
    graph: Annotated[bool | None, default("True on a GPU")] = None
    """Replay the update as CUDA graphs."""
    tf32: bool = False
    """Matrix products in TF32 on a GPU."""
    log_every: Annotated[int | None, default("1000")] = None
    """Steps between metrics lines."""
    checkpoint_every: Annotated[int | None, default("20000")] = None
    """Steps between checkpoints; 0 for none."""
    eval_every: Annotated[int | None, default("0")] = None
    """Steps between evaluations, which keep every agent's best policy; 0 for none."""
    eval_episodes: Annotated[int | None, default("5")] = None
    """Episodes of each such evaluation."""
    keep_checkpoint: bool = False
    """Keep the last checkpoint of a finished run: a larger --steps with the same --out then extends it."""


def given(*options: Any) -> dict[str, Any]:
    """What the user wrote, without what was left out."""
    written = {name: value for option in options for name, value in asdict(option).items()}
    values = {name: value for name, value in written.items() if value is not None and value != ()}
    if values.get("ent_coef") == ("auto",):
        values["ent_coef"] = "auto"
    elif "ent_coef" in values:
        try:
            values["ent_coef"] = tuple(float(word) for word in values["ent_coef"])
        except ValueError as error:
            words = " ".join(values["ent_coef"])
            raise DamperError(
                f"ent_coef must be numbers, or 'auto' for all agents, but {words!r} was given."
            ) from error
    return values


def chosen_seeds(seeds: T, seed_list: tuple[int, ...], usual: T) -> T | tuple[int, ...]:
    """``--seed-list`` names the seeds, ``--seeds`` counts them, ``usual`` many where nobody says."""
    if seed_list and seeds not in (usual, len(seed_list)):
        raise DamperError(
            f"seeds must be left out when --seed names them, but {seeds} was given too."
        )
    return seed_list or seeds
