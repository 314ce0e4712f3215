"""Other names of settings: Stable-Baselines3's, and old ones in manifests and calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from damper.engine.settings.settings import Settings
from damper.errors import DamperError
from damper.methods import find_method
from damper.protocols import protocol_name


def accept_sb3_names(
    seeds: int | Sequence[int] | None, steps: int | None, given: Mapping[str, Any]
) -> tuple[int | Sequence[int] | None, int | None, dict[str, Any]]:
    """Seeds, steps and the other settings, which may be given as Stable-Baselines3's.

    Those are ``seed``, ``total_timesteps`` and ``train_freq=(4, "step")``.

    Args:
        seeds: as given, or None.
        steps: as given, or None.
        given: the other settings.
    """
    given = current_names(given)
    if "overlap" in given:
        raise DamperError(
            f"overlap must be left out, but {given['overlap']!r} was given: it was removed, "
            "because updates run while "
            "the environments step anyway."
        )
    if (
        isinstance(freq := given.get("train_freq"), tuple | list)
        and len(freq) == 2
        and isinstance(freq[1], str)
    ):
        if freq[1] != "step":
            raise DamperError(
                f"train_freq must be a number of steps, but {freq!r} was given: damper.sb3's "
                "classes take episodes."
            )
        given["train_freq"] = freq[0]
    if "total_timesteps" in given:
        if steps is not None:
            raise DamperError(
                "steps and total_timesteps are the same setting, but both were given: leave one "
                "out."
            )
        steps = given.pop("total_timesteps")
    if "seed" in given:
        if seeds is not None:
            raise DamperError(
                "seed is for one agent and seeds for several, but both were given: leave one out."
            )
        seeds = (given.pop("seed"),)
    return seeds, steps, given


def current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Rename settings to their current names: ``envs`` to ``backend``; the removed ``overlap`` is dropped if off."""
    if "envs" in settings and "backend" in settings:
        raise DamperError(
            "backend and envs, its old name, are the same setting, but both were given: leave envs "
            "out."
        )
    removed = {"overlap"} if settings.get("overlap") is False else set()
    return {
        ("backend" if name == "envs" else name): settings[name]
        for name in settings
        if name not in removed
    }


def complete_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's settings, with defaults for settings that were added later."""
    later = {f.name: f.default for f in fields(Settings) if f.default is not MISSING}
    known = find_method(record["method"]).settings(record["method_settings"])
    record = {**current_names(record), "protocol": protocol_name(record.get("protocol"))}
    return json.loads(json.dumps({**later, **record, "method_settings": known}, default=str))
