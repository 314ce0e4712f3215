"""Checks of a run's settings: one sentence for what cannot be trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any

import torch

from damper._checks import is_number
from damper.engine.settings.devices import device_name
from damper.engine.settings.settings import Settings
from damper.errors import DamperError
from damper.methods import find_method
from damper.rules import combine_reported, initial_state
from damper.schedules import POINTS, Schedule, check_number
from damper.settings import PER_AGENT, SETTINGS, Setting

NO_CUSTOM_LAYERS = (
    "the engine batches all agents' layers; damper.sb3's classes take custom layers "
    "in policy_kwargs."
)


def check_settings(settings: Settings) -> Settings:
    """Raise for what cannot be trained; return the settings with the device's normalised name."""
    sampled = _with_schedules_sampled(settings)
    for name, declared in SETTINGS.items():
        given = getattr(settings, name)
        if isinstance(given, tuple) and not declared.per_agent and not declared.is_list:
            raise _one_value(name, given)
        # A schedule's values are those of the table in which it is sampled.
        values = [value for value in _each(given) if not isinstance(value, Schedule)]
        if declared.per_agent:
            values += [row[name] for row in sampled.table if name in row]
        if given is None and NoneType in declared.types:
            continue
        # A word in place of a number is for all agents, so a tuple of it is a mistake.
        if isinstance(given, str) and given in declared.choices:
            continue
        for value in values:
            _check_value(declared, value)
    _check_net_arch(settings.net_arch)
    seeds = settings.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise DamperError(f"seeds must be one or more different integers, but {seeds} was given.")
    settings = replace(settings, device=device_name(settings.device))
    _check_env_kwargs(settings)
    if settings.graph and not settings.device.startswith("cuda"):
        raise DamperError(
            f"graph needs device='cuda', but device={settings.device!r} was given: leave graph out."
        )
    _check_method(sampled, len(settings.agents()))
    _check_distinct({name: getattr(settings, name) for name in PER_AGENT})
    _check_distinct(settings.method_settings)
    return settings


def _one_value(name: str, given: tuple[Any, ...]) -> DamperError:
    return DamperError(
        f"{name} must be one value for the whole population, but {len(given)} were given."
    )


def _check_value(declared: Setting, value: Any) -> None:
    """Raise for a single value that does not fit its declaration."""
    choices = (True, False) if bool in declared.types else declared.choices
    if float in declared.types:
        _check_number(declared, value)
    elif int in declared.types:
        _check_integer(declared.name, value, declared.range[0], declared.fix)
    elif choices and value not in choices:
        listed = ", ".join(map(str, choices))
        raise DamperError(f"{declared.name} must be one of {listed}, but {value!r} was given.")


def _check_number(declared: Setting, value: Any) -> None:
    low, high = declared.range
    if is_number(value) and low <= value <= high:
        return
    requirement = f"a number in [{low:g}, {high:g}]"
    if Schedule in declared.types:
        requirement += ", or a schedule such as linear:0.001:0"
    if declared.choices:
        requirement += f", or {' or '.join(map(repr, declared.choices))} for all agents"
    fix = f": {declared.fix}" if declared.fix else ""
    raise DamperError(f"{declared.name} must be {requirement}, but {value!r} was given{fix}.")


def _check_integer(name: str, value: Any, low: float, fix: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        fix = f": {fix}" if fix else ""
        raise DamperError(
            f"{name} must be a whole number of at least {low}, but {value!r} was given{fix}."
        )


def _check_net_arch(sizes: Any) -> None:
    is_list = isinstance(sizes, tuple) and bool(sizes)
    if not is_list or not all(isinstance(size, int | float) for size in sizes):
        shown = " ".join(repr(sizes).split())  # a PyTorch module's has several lines
        raise DamperError(
            f"net_arch must be a list of layer sizes, but {shown} was given: {NO_CUSTOM_LAYERS}"
        )
    for size in sizes:
        _check_integer("net_arch", size, 1)


def _check_distinct(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if len(set(_each(value))) < len(_each(value)):
            raise DamperError(
                f"{name} must have different values, one for each agent, but {value} was given: a "
                "repeated value would train the same agent twice."
            )


def _check_env_kwargs(settings: Settings) -> None:
    given = settings.env_kwargs
    if given is None:
        return
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise DamperError(
            f"env_kwargs must be a dict of the environment's arguments, but {given!r} was given: "
            f"{{'name': value}}."
        )
    for name, value in given.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise DamperError(
                f"env_kwargs must hold values that JSON can represent, but {name} is {value!r}: "
                "set it in a callable that makes the environment."
            ) from error
    if settings.backend == "envpool":
        raise DamperError(
            "env_kwargs must be left out with backend='envpool', which makes environments as "
            f"registered, but {given} was given: use backend='gymnasium'."
        )


def _check_method(settings: Settings, n_agents: int) -> None:
    """Raise for settings that the method's losses or its rule do not accept.

    ``settings`` have one agent for every point of a schedule; ``n_agents`` is the true number.
    """
    method = find_method(settings.method)
    defaults = method.settings()
    for name, value in settings.method_settings.items():
        if is_number(defaults[name]):
            for number in _each(value):
                check_number(name, number)
        elif isinstance(value, tuple):
            raise _one_value(name, value)
        elif isinstance(value, Schedule):
            raise DamperError(
                f"{name} must be one value for the whole run, but the schedule {value!r} was given."
            )
    if not settings.agents():
        raise DamperError(
            "a setting given as a list must have at least one value, but an empty list was given."
        )
    # Run the checks of the losses and of the rule; their results are not needed.
    method_kwargs = settings.method_kwargs(torch.device("cpu"), torch.float64)
    if method.rule:
        if not method.is_shipped and n_agents > 1:
            _check_batched(method.rule, method_kwargs["rule"])
        ones = torch.ones(len(settings.agents()), 1, dtype=torch.float64)
        combine_reported(
            method.rule, ones, ones, auxiliary_loss=ones[:, 0], **method_kwargs["rule"]
        )


def _check_batched(rule: str, settings: Mapping[str, Any]) -> None:
    """Raise if a custom rule mixes agents: one agent's result must not depend on another's."""
    shape = (4, 2, 2, 5)  # steps, the two gradients, agents, parameters
    gradients = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = torch.tensor([0.01, 0.04], dtype=torch.float64)

    def answers(first: int, second: int) -> torch.Tensor:
        """Combined gradients ``[steps, 2, n]`` of two agents, with the same random numbers."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            # The first and the last agent's settings.
            per_agent = {k: v for k, v in settings.items() if isinstance(v, torch.Tensor)}
            kwargs = {**settings, **{k: v[[-first, -second]] for k, v in per_agent.items()}}
            state, combined = initial_state(rule, gradients[0, 0], **kwargs), []
            for primary, auxiliary in gradients[:, :, [first, second]]:
                answer, report = combine_reported(
                    rule,
                    primary,
                    auxiliary,
                    state,
                    auxiliary_loss=losses[[first, second]],
                    **kwargs,
                )
                state = report.state
                combined.append(answer)
        return torch.stack(combined)

    must = (
        f"rule {rule!r} must be batched over leading axes, since a population's gradients are "
        "[P, n], but"
    )
    fix = "reduce with dim=-1, keepdim=True, and unsqueeze(-1) a setting of agents, which is [P]."
    try:
        together, again = answers(0, 1), answers(0, 1)
        alone = torch.stack((answers(0, 0)[:, 0], answers(1, 1)[:, 1]), 1)
    except (RuntimeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise DamperError(f"{must} fails for two agents ({reason}): {fix}") from error
    same = partial(torch.allclose, rtol=1e-4, atol=1e-4, equal_nan=True)
    # If two equal calls differ, the rule draws its own random numbers, and this test says nothing.
    if same(together, again) and not same(together, alone):
        raise DamperError(f"{must} one agent's result depends on another's gradients: {fix}")


def _with_schedules_sampled(settings: Settings) -> Settings:
    """The settings with one agent per point of each agent's schedules: checks see all values."""
    scheduled = settings.scheduled()
    if not scheduled:
        return settings
    rows = []
    for i, agent in enumerate(settings.agents()):
        values = {name: column[i] for name, column in scheduled.items()}
        schedules = {name: value for name, value in values.items() if isinstance(value, Schedule)}
        for point in POINTS:
            rows.append({**agent, **{name: value(point) for name, value in schedules.items()}})
    return replace(settings, table=tuple(rows))


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
