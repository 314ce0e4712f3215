"""Options of ``damper train`` and ``compare``, made from what settings and methods declare."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from damper.cli.options import LEFT_OUT, PROTOCOL, Numbers, Schedules, SeedList, default, one_of
from damper.protocols import PROTOCOLS, SHORT_TASKS, protocol_settings
from damper.settings import BACKBONES, SCHEDULES, SETTINGS, Setting

# What only an import of torch could say of methods; `python tools/method_help.py` writes it.
METHODS_JSON = Path(__file__).with_name("methods.json")
METHOD_TEXTS = json.loads(METHODS_JSON.read_text(encoding="utf-8"))
_LISTED = "".join(f"{name}: {words}\n" for name, words in METHOD_TEXTS["methods"].items())
METHOD_LIST = (
    "Smoothing method; rules combine the actor's gradient (primary) with that of the temporal loss "
    f"(auxiliary).\n{_LISTED}Combine parts of several as in damper+grad-caps+pave."
)


def default_words(declared: Setting) -> str:
    """What a setting is where it is left out: its value, and that of protocols with another one."""
    if declared.automatic:
        return declared.automatic
    usual, *others = (_published(declared, protocol) for protocol in ("authors", *PROTOCOLS))
    parts = [usual]
    for protocol, words in zip(PROTOCOLS, others, strict=True):
        if words != usual:
            parts.append(f"{words} with --protocol {protocol}")
    return "; ".join(parts)


def _published(declared: Setting, protocol: str) -> str:
    """A setting's value in a protocol, with backbones and tasks where it differs between them."""
    owners: dict[str, list[str]] = {}
    for backbone in (declared.backbone,) if declared.backbone else BACKBONES:
        words = []
        for task in (None, SHORT_TASKS[0]):
            value = protocol_settings(protocol, backbone, task).get(declared.name, declared.default)
            words.append(" ".join(map(str, value)) if isinstance(value, tuple) else str(value))
        usual, short = words
        owners.setdefault(usual, []).append(backbone)
        if short != usual:
            owners.setdefault(short, []).append(f"{backbone} on {' and '.join(SHORT_TASKS)}")
    if len(owners) == 1:
        return next(iter(owners))
    return ", ".join(f"{value} ({', '.join(where)})" for value, where in owners.items())


def _engine_option(declared: Setting) -> tuple[str, Any, Any]:
    """The option of a setting: name, type and default, as ``make_dataclass`` takes them."""
    words = default(default_words(declared), help=declared.help)
    kind: Any
    if declared.per_agent or isinstance(declared.default, tuple):
        several = Schedules if declared.takes_words else Numbers
        kind = several if declared.per_agent else declared.type
        return declared.name, Annotated[kind, words], field(default=LEFT_OUT)
    kind = Annotated[declared.type | None, words]
    if declared.choices:
        kind = Annotated[kind, one_of(*declared.choices)]
    return declared.name, kind, field(default=None)


EngineOptions = make_dataclass(
    "EngineOptions", [_engine_option(declared) for declared in SETTINGS.values() if declared.option]
)


def _method_option(name: str, texts: dict[str, str]) -> tuple[str, Any, Any]:
    """The option of a method's setting, likewise."""
    kinds = {"numbers": Schedules, "word": str | None, "switch": bool | None}
    kind = kinds[texts["kind"]]
    words = default(texts["default"], help=texts["help"])
    return name, Annotated[kind, words], field(default=LEFT_OUT if kind is Schedules else None)


MethodOptions = make_dataclass(
    "MethodOptions",
    [_method_option(name, texts) for name, texts in METHOD_TEXTS["settings"].items()],
)


def _help(name: str, **more: Any) -> Any:
    return tyro.conf.arg(help=SETTINGS[name].help, **more)


@dataclass
class TrainingOptions:
    """What both ``damper train`` and ``damper compare`` take."""

    env: tyro.conf.Positional[Annotated[str, _help("env", metavar="ENV")]]
    backbone: Annotated[str, one_of(*BACKBONES), _help("backbone")] = "td3"
    seed_list: SeedList = LEFT_OUT
    """These seeds, in place of --seeds."""
    steps: Annotated[
        int | None,
        default(
            "the paper's budget; required for other tasks",
            help=SETTINGS["steps"].help,
            aliases=("--total-timesteps",),
        ),
    ] = None
    protocol: Annotated[
        str | None,
        default(
            "the authors' settings, and seeds 0, 1, ...",
            help=SETTINGS["protocol"].help,
            metavar=PROTOCOL,
        ),
    ] = None
    engine: Annotated[
        EngineOptions,  # type: ignore[valid-type]
        tyro.conf.arg(
            help="Settings of the algorithm and the engine, with Stable-Baselines3's names. "
            "Several values train one agent each."
        ),
    ] = field(default_factory=EngineOptions)
    settings: Annotated[
        MethodOptions,  # type: ignore[valid-type]
        tyro.conf.arg(help=f"Settings of the method; {SCHEDULES} follow the run's progress."),
    ] = field(default_factory=MethodOptions)
