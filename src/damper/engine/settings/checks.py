"""Checks of a run's settings: one sentence for what cannot be trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch

from damper.activations import ACTIVATIONS
from damper.engine.settings.devices import device_name
from damper.engine.settings.settings import PER_AGENT, Settings, is_number
from damper.errors import DamperError
from damper.methods import find_method
from damper.rules import combine_reported, initial_state
from damper.schedules import POINTS, Schedule, check_number

_RANGES: dict[str, tuple[float, float]] = {
    "learning_rate": (0.0, 1.0),
    "gamma": (0.0, 1.0),
    "tau": (0.0, 1.0),
    "target_policy_noise": (0.0, 10.0),
    "target_noise_clip": (0.0, 10.0),
    "action_noise": (0.0, 10.0),
    "ent_coef": (0.0, 1e6),
}
_CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "dtype": ("float32", "float64"),
    "backend": ("gymnasium", "envpool"),
    "graph": (True, False, None),
}
_MAY_BE_ZERO = (
    "learning_starts",
    "checkpoint_every",
    "eval_every",
)  # all other integers must be at least 1
NO_CUSTOM_LAYERS = (
    "the engine batches all agents' layers; damper.sb3's classes take custom layers "
    "in policy_kwargs."
)


def check_settings(settings: Settings) -> Settings:
    """Raise for what cannot be trained; return the settings with the device's normalised name."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    for name, value in values.items():
        if isinstance(value, tuple) and name not in (*PER_AGENT, "seeds", "net_arch", "table"):
            raise DamperError(
                f"{name} must be one value for the whole population, but {len(value)} were given."
            )
    sampled = _with_schedules_sampled(settings)
    for name, (low, high) in _RANGES.items():
        automatic = name == "ent_coef" and values[name] == "auto"
        given = [value for value in _each(values[name]) if not isinstance(value, Schedule)]
        for value in (
            () if automatic else (*given, *(row[name] for row in sampled.table if name in row))
        ):
            _check_number(name, value, low, high)
    for name in (f.name for f in fields(settings) if f.type == "int"):
        _check_integer(name, values[name], 0 if name in _MAY_BE_ZERO else 1)
    switches = {f.name: (True, False) for f in fields(settings) if f.type == "bool"}
    for name, choices in (_CHOICES | switches).items():
        if values[name] not in choices:
            raise DamperError(
                f"{name} must be one of {', '.join(map(str, choices))}, but {values[name]!r} was "
                "given."
            )
    sizes = settings.net_arch
    if (
        not isinstance(sizes, tuple)
        or not sizes
        or not all(isinstance(size, int | float) for size in sizes)
    ):
        shown = " ".join(repr(sizes).split())
        raise DamperError(
            f"net_arch must be a list of layer sizes, but {shown} was given: {NO_CUSTOM_LAYERS}"
        )
    for size in sizes:
        _check_integer("net_arch", size, 1)
    if not settings.seeds or len(set(settings.seeds)) < len(settings.seeds):
        raise DamperError(
            f"seeds must be one or more different integers, but {settings.seeds} was given."
        )
    settings = replace(settings, device=device_name(settings.device))
    _check_env_kwargs(settings)
    if settings.graph and not settings.device.startswith("cuda"):
        raise DamperError(
            f"graph needs device='cuda', but device={settings.device!r} was given: leave graph out."
        )
    _check_method(sampled, len(settings.agents()))
    for name, value in (
        *((name, values[name]) for name in PER_AGENT),
        *settings.method_settings.items(),
    ):
        if len(set(_each(value))) < len(_each(value)):
            raise DamperError(
                f"{name} must have different values, one for each agent, but {value} was given: a "
                "repeated value would "
                "train the same agent twice."
            )
    return settings


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    if not is_number(value) or not low <= value <= high:
        others = {
            "ent_coef": ", or 'auto' for all agents",
            "learning_rate": ", or a schedule such as linear:0.001:0",
        }
        others["action_noise"] = ", the standard deviation of normal noise (0 for SB3's None)"
        more = others.get(name, "")
        raise DamperError(
            f"{name} must be a number in [{low:g}, {high:g}]{more}, but {value!r} was given."
        )


def _check_integer(name: str, value: Any, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        fix = (
            ": for SB3's -1 give the number that train_freq has"
            if (name, value) == ("gradient_steps", -1)
            else ""
        )
        raise DamperError(
            f"{name} must be a whole number of at least {low}, but {value!r} was given{fix}."
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
                "set it in a callable "
                "that makes the environment."
            ) from error
    if settings.backend == "envpool":
        raise DamperError(
            "env_kwargs must be left out with backend='envpool', which makes environments as "
            "registered, but "
            f"{given} was given: use backend='gymnasium'."
        )


def _check_method(settings: Settings, n_agents: int) -> None:
    """Raise for settings that the method's losses or its rule do not accept.

    Args:
        settings: with one agent for every point of a schedule.
        n_agents: the true number of agents.
    """
    method = find_method(settings.method)
    defaults = method.settings()
    for name, value in settings.method_settings.items():
        if isinstance(value, tuple) and not is_number(defaults[name]):
            raise DamperError(
                f"{name} must be one value for the whole population, but {len(value)} were given."
            )
        for one in _each(value):
            if isinstance(one, Schedule) and not is_number(defaults[name]):
                raise DamperError(
                    f"{name} must be one value for the whole run, but the schedule {one!r} was "
                    "given."
                )
            if is_number(defaults[name]):
                check_number(name, one)
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
    """Raise if a custom rule mixes agents: the result for one of two agents must not depend on the other."""
    own = {
        name: value[[0, -1]] if isinstance(value, torch.Tensor) else value
        for name, value in settings.items()
    }
    shape = (4, 2, 2, 5)  # steps, the two gradients, agents, parameters
    gradients = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = torch.tensor([0.01, 0.04], dtype=torch.float64)

    def answers(first: int, second: int) -> torch.Tensor:
        """Combined gradients ``[steps, 2, n]`` of these two agents, with the same random numbers in every call."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            kwargs = {
                k: v[[first, second]] if isinstance(v, torch.Tensor) else v for k, v in own.items()
            }
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
    fix = (
        "reduce with dim=-1, keepdim=True, and unsqueeze(-1) a setting that differs between "
        "agents, which is [P]."
    )
    try:
        together, again = answers(0, 1), answers(0, 1)
        alone = torch.stack((answers(0, 0)[:, 0], answers(1, 1)[:, 1]), 1)
    except (RuntimeError, IndexError) as error:
        raise DamperError(
            f"{must} fails for two agents ({str(error).splitlines()[0]}): {fix}"
        ) from error
    same = partial(torch.allclose, rtol=1e-4, atol=1e-4, equal_nan=True)
    # If two equal calls differ, the rule draws its own random numbers, and this test says nothing.
    if same(together, again) and not same(together, alone):
        raise DamperError(f"{must} one agent's result depends on another's gradients: {fix}")


def _with_schedules_sampled(settings: Settings) -> Settings:
    """Settings with one agent per point of each agent's schedules, so that checks see all scheduled values."""
    scheduled = settings.scheduled()
    if not scheduled:
        return settings
    rows = (
        {
            **agent,
            **{
                name: column[i](point)
                for name, column in scheduled.items()
                if isinstance(column[i], Schedule)
            },
        }
        for i, agent in enumerate(settings.agents())
        for point in POINTS
    )
    return replace(settings, table=tuple(rows))


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
