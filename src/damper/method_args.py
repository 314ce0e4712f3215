"""The method that the arguments of ``damper.train``, the SB3 and the rsl_rl classes choose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from damper._checks import is_number
from damper.errors import DamperError
from damper.methods import METHODS, Method, components, compose, find_method, setting_hint
from damper.rules import Rule, combine_reported
from damper.schedules import POINTS, Schedule, as_schedule, check_number, value_at


class DefaultEta(float):
    """A class's default of η; unlike the same number given, it leaves a rule its own default."""


ETA = DefaultEta(1.0)
# At 1, which is the paper's for most tasks, PPO's noisy gradients may teach it nothing.
PPO_ETA = DefaultEta(0.0)


def choose(
    method: str | Method,
    rule: str | Rule | None = None,
    auxiliary: str | None = None,
    critic: str | None = None,
) -> str | Method:
    """Replace parts of a method; the result is a name where one describes it, else a ``Method``.

    A rule for a method without an actor loss adds the temporal loss.
    """
    replaced = {"auxiliary": auxiliary, "critic": critic, "rule": None if callable(rule) else rule}
    given = {name: part for name, part in replaced.items() if part is not None}
    chosen = find_method(method)
    if given:
        parts = components(chosen.name)._replace(**given)
        if parts.auxiliary is None and parts.rule is None:
            raise DamperError(
                "critic must be combined with a method that has an actor loss, but method "
                f"{chosen.name!r} has none: use method {parts.critic!r}, or name an auxiliary too."
            )
        chosen = compose(parts.auxiliary or "temporal", parts.rule, parts.critic)
        method = chosen.name
    if callable(rule):
        return replace(chosen, name=getattr(rule, "__name__", "custom"), rule=rule)  # type: ignore[arg-type]
    return method


def default_eta(method: str | Method, eta: float) -> Method:
    """The named method with this default of η; a ``Method`` is returned as it is."""
    if isinstance(method, Method):
        return method
    named = find_method(method)
    return replace(named, defaults={"eta": float(eta), **named.defaults})


def is_setting(name: str, method: Method) -> bool:
    """Whether this or any other method has a setting of that name."""
    return any(name in other.settings() for other in (method, *METHODS.values()))


def check_names(
    method: Method,
    settings: Mapping[str, Any],
    arguments: Iterable[str] = (),
    whose: str = "SB3's class",
) -> None:
    """Raise for a setting that the method does not have; hints may be the class's ``arguments``."""
    known_settings = method.settings()
    for name in settings:
        if name not in known_settings:
            neither = f"{name} is neither an argument of {whose} nor a setting of the method"
            raise DamperError(f"{neither}: {setting_hint(name, method, arguments)}")


def check_no_critic_loss(method: Method, why: str) -> None:
    """Raise for a method with a loss on critics, which the class cannot take."""
    if method.critic is not None:
        fix = "choose one without a critic loss"
        if method.actor:
            fix = "use its actor loss alone, as in auxiliary='l2c2'"
        raise DamperError(f"method {method.name!r} has a loss on {why}: {fix}.")


def check_rule(method: Method, settings: Mapping[str, Any]) -> None:
    """Apply the rule once, so that wrong settings raise now instead of at the first update."""
    if method.rule:
        pair = torch.eye(2)
        # MetaBalance's sizes fit the actor, not this pair.
        fitting = {name: value for name, value in settings.items() if name != "sizes"}
        combine_reported(method.rule, *pair, auxiliary_loss=torch.ones(()), **fitting)


def parse_settings(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """Given settings with schedules in place of texts and functions, checked over the whole run."""
    parsed = {name: as_schedule(name, value) for name, value in given.items()}
    defaults = method.settings()
    for name, value in parsed.items():
        if is_number(defaults[name]):
            check_number(name, value)
    scheduled = any(isinstance(value, Schedule) for value in parsed.values())
    for progress_remaining in POINTS[::-10] if scheduled else POINTS[:1]:
        check_rule(method, settings_at(method, parsed, progress_remaining)["rule"])
    return parsed


def settings_at(
    method: Method, parsed: Mapping[str, Any], progress_remaining: float
) -> dict[str, dict[str, Any]]:
    """Settings by the method's parts ("actor", "critic", "rule"), schedules by their value now."""
    return method.route({name: value_at(v, progress_remaining) for name, v in parsed.items()})


def noise_generator(device: torch.device | str, seed: int | None = None) -> torch.Generator:
    """A generator for the losses' noise, so that the library's own random numbers stay as they are.

    Without a seed it is seeded from a copy of torch's global state.
    """
    if seed is None:
        copy = torch.Generator("cpu")
        copy.set_state(torch.get_rng_state())
        seed = int(torch.randint(2**62, (), generator=copy, device="cpu"))
    return torch.Generator(device).manual_seed(seed)
