"""Published training settings (protocols) as data; compare methods only within one protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from damper.errors import DamperError

TRAINING_SEEDS = (178132, 410580, 922852, 787576, 660993, 857751, 968229, 423337, 499844, 985365)
EVALUATION_SEEDS = (178132, 6021, 40415, 92510, 13377, 58024, 71190, 3298, 84461, 26753)

_SHARED: dict[str, Any] = {"tau": 0.005, "activation": "silu"}
_TD3: dict[str, Any] = {
    "net_arch": (400, 300),
    "policy_delay": 2,
    "target_policy_noise": 0.2,
    "target_noise_clip": 0.5,
    "action_noise": 0.1,
    "train_freq": 1,
    "gradient_steps": 1,
}
_SAC: dict[str, Any] = {"net_arch": (256, 256)}
SHORT_TASKS = ("LunarLander", "Pendulum")


def _pave(backbone: str, task: str | None) -> dict[str, Any]:
    """PAVE's released settings, which the paper says it follows."""
    common = {**_SHARED, "learning_rate": 1e-3, "learning_starts": 10_000}
    if backbone == "sac":
        sac = {
            "batch_size": 100,
            "gamma": 0.99,
            "buffer_size": 1_000_000,
            "train_freq": 50,
            "gradient_steps": 50,
        }
        return {**common, **_SAC, **sac, "ent_coef": 0.2}
    short = task in SHORT_TASKS
    td3 = {
        "batch_size": 256,
        "gamma": 0.98 if short else 0.99,
        "buffer_size": 200_000 if short else 1_000_000,
    }
    return {**common, **_TD3, **td3}


def _authors(backbone: str, task: str | None) -> dict[str, Any]:
    """The settings of the authors' public DAMPER code."""
    common = {
        **_SHARED,
        "learning_rate": 3e-4,
        "learning_starts": 100,
        "batch_size": 256,
        "gamma": 0.99,
    }
    common |= {"buffer_size": 1_000_000, "train_freq": 1, "gradient_steps": 1}
    return {**common, **_SAC, "ent_coef": "auto"} if backbone == "sac" else {**common, **_TD3}


PROTOCOLS = {"pave": _pave, "authors": _authors}
_RECORDED = {
    "authors": "damper"
}  # renamed, since a rule, a method and the package are called "damper" too


def protocol_name(name: str | None) -> str | None:
    """A protocol's current name; None and unknown names are returned as they are."""
    return {old: new for new, old in _RECORDED.items()}.get(name or "", name)


def recorded_protocol(name: str | None) -> str | None:
    """The name under which identities and folders have always recorded a protocol."""
    return _RECORDED.get(name or "", name)


def protocol_settings(name: str | None, backbone: str, task: str | None) -> Mapping[str, Any]:
    """A protocol's settings for a backbone and a task of the paper (None: any other task).

    Without a protocol the defaults are the authors' settings.
    """
    name = protocol_name(name)
    if name is not None and name not in PROTOCOLS:
        raise DamperError(
            f"protocol must be one of {', '.join(PROTOCOLS)}, but {name!r} was given."
        )
    return PROTOCOLS[name or "authors"](backbone, task)
