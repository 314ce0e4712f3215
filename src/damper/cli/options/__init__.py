"""What each command takes, as typed data that imports no torch: help and mistakes in it are answered at once.

Here are the options that several commands share.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import tyro

from damper.errors import DamperError

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
    """Where to train, as in torch: cpu, cuda; a GPU where there is one by default."""
    envs: Literal["gymnasium", "envpool"] | None = None
    """Who steps the environments."""
    env_threads: int | None = None
    """EnvPool's threads, as many as cores by default; where there are two pools they share them."""
    compile: tyro.conf.FlagCreatePairsOff[bool] = False
    """Run the update through torch.compile; by default on a GPU, where the run is long enough to pay for it."""
    no_compile: tyro.conf.FlagCreatePairsOff[bool] = False
    """Never compile."""
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
    keep_checkpoint: bool = False
    """Keep the last one when the run is finished: a larger --steps then extends it."""


def given(*options: Any) -> dict[str, Any]:
    """What the user wrote, without what was left out."""
    written = {name: value for option in options for name, value in asdict(option).items()}
    values = {name: value for name, value in written.items() if value is not None and value != ()}
    if values.pop("no_compile", False):
        values["compile"] = False
    elif not values.get("compile"):
        values.pop("compile", None)
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
