"""Options that several commands share: the engine's settings, and those of every method."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, make_dataclass
from typing import Annotated, Any, Literal

import tyro

from damper.errors import DamperError
from damper.methods import METHODS

Numbers = tuple[float, ...]


@dataclass
class EngineOptions:
    """Settings of the backbone and the engine; what is left out comes from the protocol. Lists make a population."""

    learning_rate: Numbers = ()
    """Adam's step size."""
    buffer_size: int | None = None
    """Transitions kept per agent."""
    learning_starts: int | None = None
    """Steps with random actions before learning."""
    batch_size: int | None = None
    """Transitions per gradient step."""
    tau: Numbers = ()
    """Polyak rate of the targets."""
    gamma: Numbers = ()
    """Discount."""
    train_freq: int | None = None
    """Steps between rounds of gradient steps."""
    gradient_steps: int | None = None
    """Gradient steps per round."""
    policy_delay: int | None = None
    """TD3: critic steps per actor step."""
    target_policy_noise: Numbers = ()
    """TD3: noise on the target action."""
    target_noise_clip: Numbers = ()
    """TD3: its bound."""
    action_noise: Numbers = ()
    """TD3: exploration noise."""
    ent_coef: tuple[str, ...] = ()
    """SAC: the temperature, or "auto"."""
    net_arch: tuple[int, ...] = ()
    """Hidden layers."""
    activation: Literal["silu", "relu", "tanh"] | None = None
    """Hidden layers' activation."""
    device: str | None = None
    """Where to train, as in torch: cpu, cuda."""
    envs: Literal["gymnasium", "envpool"] | None = None
    """Who steps the environments."""
    env_threads: int | None = None
    """EnvPool's threads, as many as cores by default; where there are two pools they share them."""
    compile: bool = False
    """Run the update through torch.compile."""
    graph: bool | None = None
    """Replay the update as CUDA graphs (default on a GPU)."""
    tf32: bool = False
    """Matrix products in TF32 on a GPU."""
    overlap: bool = False
    """Update while the environments step and policies act, for a GPU; those are then two steps behind."""
    log_every: int | None = None
    """Steps between metrics lines."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; 0 for none."""


def _method_fields() -> list[tuple[str, Any, Any]]:
    """One option per setting of any method, with the methods that take it as its help."""
    takers: dict[str, list[str]] = {}
    defaults: dict[str, list[Any]] = {}
    for name, method in METHODS.items():
        known = {setting: default for setting, default in method.settings().items() if default is not None}
        for setting, default in known.items():
            takers.setdefault(setting, []).append(name)
            defaults.setdefault(setting, []).append(default)
    words = {setting: "Of " + ", ".join(names) + "." for setting, names in takers.items()}
    words |= {setting: "Of every method." for setting, names in takers.items() if len(names) == len(METHODS) - 1}
    for setting in {name for method in METHODS.values() for name in method.parts()["critic"]}:
        if any(default != defaults[setting][0] for default in defaults[setting]):
            defaults[f"critic_{setting}"] = defaults[setting]
            words[f"critic_{setting}"] = f"The critic loss's own {setting}, where a composed method has two."
    return [(setting, *_option(values[0], words[setting])) for setting, values in sorted(defaults.items())]


def _option(default: Any, words: str) -> tuple[Any, Any]:
    """An option's type and default: lists of numbers, single words and switches."""
    kind: Any = {bool: bool | None, str: str | None}.get(type(default), Numbers)
    return Annotated[kind, tyro.conf.arg(help=words)], field(default=() if kind is Numbers else None)


MethodOptions = make_dataclass("MethodOptions", _method_fields())
MethodOptions.__doc__ = (
    "Settings of the method; what is left out comes from its preset for the task. Lists make a population."
)


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


def chosen_seeds(seeds: int, seed_list: tuple[int, ...]) -> int | tuple[int, ...]:
    """``--seed-list`` names the seeds, ``--seeds`` counts them."""
    return seed_list or seeds
