"""Published training settings (protocols) as data; compare methods only within one protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from damper.errors import DamperError
from damper.settings import SETTINGS

TRAINING_SEEDS = (178132, 410580, 922852, 787576, 660993, 857751, 968229, 423337, 499844, 985365)
EVALUATION_SEEDS = (178132, 6021, 40415, 92510, 13377, 58024, 71190, 3298, 84461, 26753)

SHORT_TASKS = ("LunarLander", "Pendulum")


def _pave(backbone: str, task: str | None) -> dict[str, Any]:
    """PAVE's released settings, which the paper says it follows."""
    settings: dict[str, Any] = {
        "learning_rate": 1e-3,
        "learning_starts": 10_000,
        "tau": 0.005,
        "activation": "silu",
    }
    if backbone == "sac":
        return settings | {
            "net_arch": (256, 256),
            "batch_size": 100,
            "gamma": 0.99,
            "buffer_size": 1_000_000,
            "train_freq": 50,
            "gradient_steps": 50,
            "ent_coef": 0.2,
        }
    short = task in SHORT_TASKS
    return settings | {
        "net_arch": (400, 300),
        "batch_size": 256,
        "gamma": 0.98 if short else 0.99,
        "buffer_size": 200_000 if short else 1_000_000,
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_delay": 2,
        "target_policy_noise": 0.2,
        "target_noise_clip": 0.5,
        "action_noise": 0.1,
    }


def _authors(backbone: str, task: str | None) -> dict[str, Any]:
    """Settings of the authors' public DAMPER code: the engine's defaults, but for TD3's layers."""
    defaults = {name: SETTINGS[name].default for name in _pave(backbone, task)}
    return defaults | ({"net_arch": (400, 300)} if backbone == "td3" else {})


PROTOCOLS = {"pave": _pave, "authors": _authors}


def protocol_settings(name: str | None, backbone: str, task: str | None) -> Mapping[str, Any]:
    """A protocol's settings, by default the authors', for a task of the paper (None: any other)."""
    name = "authors" if name is None else name
    if name not in PROTOCOLS:
        names = ", ".join(PROTOCOLS)
        raise DamperError(f"protocol must be one of {names}, but {name!r} was given.")
    return PROTOCOLS[name](backbone, task)
