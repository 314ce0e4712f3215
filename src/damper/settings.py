"""The settings of training, each declared once: name, type, default, help, range, what it decides.

The options of ``damper train`` and ``compare``, the checks, what makes another run or agent, and
the table in the documentation are derived from these declarations. A new setting is one more line
here, and the code that reads it. Nothing here imports torch, so that ``--help`` answers at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from damper.schedules import KINDS as SCHEDULE_KINDS
from damper.schedules import Schedule

# What a setting decides. "task": what is trained, named on its own in an agent's identity;
# "training" and "numerics": what an agent learns; "evaluation": what a run's folder holds besides
# its agents; "execution": how a run is computed, with results that agree up to rounding (`device`,
# `compile`, `graph`) or bit for bit. A resumed run may change settings of execution and no others.
Kind = Literal["task", "training", "numerics", "evaluation", "execution"]
POSITIVE = (1, math.inf)
FROM_ZERO = (0, math.inf)
SCHEDULES = " and ".join(f"{kind}:START:END" for kind in SCHEDULE_KINDS)


class Setting(NamedTuple):
    """The declaration of a setting.

    Attributes:
        name: as users write it, Stable-Baselines3's where it has one.
        type: its type; agents may differ where a tuple is an alternative to a number.
        default: where neither user, preset nor protocol gives a value; MISSING where one must.
        help: what it means, for ``--help`` and the documentation.
        range: lowest and highest value of a number; whole numbers are at least 1 by default.
        choices: all values that a word may have.
        fix: the likely fix of a number that is not in the range.
        backbone: the only backbone that reads it; None for all.
        kind: what it decides.
        automatic: how it is chosen where it is left out, if that is more than the default.
        option: whether the command line has it, among the options of the engine.
    """

    name: str
    type: Any
    default: Any
    help: str
    range: tuple[float, float] = POSITIVE
    choices: tuple[str, ...] = ()
    fix: str = ""
    backbone: str | None = None
    kind: Kind = "training"
    automatic: str = ""
    option: bool = True

    @property
    def types(self) -> tuple[Any, ...]:
        """The types that a value may have."""
        is_union = get_origin(self.type) in (Union, UnionType)
        return get_args(self.type) if is_union else (self.type,)

    @property
    def per_agent(self) -> bool:
        """Whether agents of one population may differ in it."""
        return not self.is_list and any(get_origin(kind) is tuple for kind in self.types)

    @property
    def is_list(self) -> bool:
        """Whether its one value is a list."""
        return get_origin(self.type) is tuple

    @property
    def takes_words(self) -> bool:
        """Whether a value may be text: a schedule, or a word instead of a number."""
        return any(isinstance(kind, type) and issubclass(kind, str) for kind in self.types)


def setting(default: Any, help: str, **facts: Any) -> Any:
    """A field of ``TrainingSettings``; ``facts`` are further attributes of its ``Setting``."""
    metadata = {"help": help, **facts}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


_identifying = partial(setting, kind="task", option=False)
_execution = partial(setting, kind="execution")
PerAgent: TypeAlias = float | tuple[float, ...]


@dataclass(frozen=True)
class TrainingSettings:
    """All settings of a run; tuples make a population of their product where agents may differ."""

    env: str | Callable[[], Any] = _identifying(
        MISSING, "A Gymnasium id (Pendulum-v1) or a task of the paper (Hopper)."
    )
    backbone: str = _identifying(MISSING, "The actor-critic algorithm.", choices=("td3", "sac"))
    method: str = _identifying(MISSING, "The smoothing method.")
    seeds: tuple[int, ...] = _identifying(MISSING, "The agents' seeds.")
    steps: int = setting(MISSING, "Environment steps per agent.", option=False)
    protocol: str | None = _identifying(
        None,
        "Published settings to start from: PAVE's, which the paper follows, or those of DAMPER's "
        "authors' code.",
    )
    learning_rate: float | Schedule | tuple[float | Schedule, ...] = setting(
        3e-4, f"Adam's step size; {SCHEDULES} follow the run's progress.", range=(0.0, 1.0)
    )
    buffer_size: int = setting(1_000_000, "Transitions kept per agent.")
    learning_starts: int = setting(
        100, "Steps with random actions before learning.", range=FROM_ZERO
    )
    batch_size: int = setting(256, "Transitions per gradient step.")
    tau: PerAgent = setting(0.005, "Polyak rate of the targets.", range=(0.0, 1.0))
    gamma: PerAgent = setting(0.99, "Discount.", range=(0.0, 1.0))
    train_freq: int = setting(1, "Steps between rounds of gradient steps.")
    gradient_steps: int = setting(
        1, "Gradient steps per round.", fix="for SB3's -1 give the number that train_freq has"
    )
    policy_delay: int = setting(2, "TD3: critic steps per actor step.", backbone="td3")
    target_policy_noise: PerAgent = setting(
        0.2, "TD3: noise on the target action.", range=(0.0, 10.0), backbone="td3"
    )
    target_noise_clip: PerAgent = setting(
        0.5, "TD3: bound of that noise.", range=(0.0, 10.0), backbone="td3"
    )
    action_noise: PerAgent = setting(
        0.1,
        "TD3: exploration noise.",
        range=(0.0, 10.0),
        fix="it is the standard deviation of normal noise, 0 for SB3's None",
        backbone="td3",
    )
    ent_coef: PerAgent | str = setting(
        "auto",
        'SAC: the temperature, or "auto".',
        range=(0.0, 1e6),
        choices=("auto",),
        backbone="sac",
    )
    max_grad_norm: PerAgent | None = setting(
        None,
        "Bound on the norm of an agent's gradients, the actor's after the rule and the critics'.",
        range=(0.0, 1e6),
        fix="leave it out to bound nothing",
        automatic="no bound",
    )
    net_arch: tuple[int, ...] = setting((256, 256), "Sizes of the hidden layers.")
    # The choices are the names in `damper.activations`, which imports torch.
    activation: str = setting(
        "silu", "Hidden layers' activation.", choices=("silu", "relu", "tanh")
    )
    norm_obs: bool = setting(
        False, "Normalise observations by their running mean and variance, like VecNormalize."
    )
    method_settings: Mapping[str, Any] = _identifying(dict, "The method's own settings.")
    table: tuple[Mapping[str, Any], ...] = _identifying(
        (), "One row per agent, for agents that are not a product of settings."
    )
    env_kwargs: Mapping[str, Any] | None = _identifying(
        None, "The environment's own arguments, for Gymnasium's environments."
    )
    device: str = _execution(
        "cpu", "Where to train, as in torch: cpu, cuda.", automatic="a GPU where there is one"
    )
    backend: str = setting(
        "gymnasium",
        "What steps the environments: Gymnasium, or EnvPool with C++ threads.",
        choices=("gymnasium", "envpool"),
        kind="task",
        automatic="envpool on a GPU for tasks with a short name, else gymnasium",
    )
    env_threads: int | None = _execution(
        None, "EnvPool's threads.", automatic="one per core; for a worker, its agents' share"
    )
    dtype: str = setting(
        "float32",
        "Numbers of networks and gradients.",
        choices=("float32", "float64"),
        kind="numerics",
        option=False,
    )
    compile: bool = _execution(
        False,
        "Run the update through torch.compile.",
        automatic="auto: on a GPU, if the run is long enough to gain from it",
    )
    graph: bool | None = _execution(
        None, "Replay the update as CUDA graphs.", automatic="True on a GPU"
    )
    tf32: bool = setting(False, "Matrix products in TF32 on a GPU.", kind="numerics")
    log_every: int = _execution(1000, "Steps between metrics lines.")
    checkpoint_every: int = _execution(
        20_000, "Steps between checkpoints; 0 for none.", range=FROM_ZERO
    )
    keep_checkpoint: bool = _execution(
        False,
        "Keep the last checkpoint of a finished run: a larger --steps with the same --out then "
        "extends it.",
    )
    eval_every: int = setting(
        0,
        "Steps between evaluations, which keep every agent's best policy; 0 for none.",
        range=FROM_ZERO,
        kind="evaluation",
    )
    eval_episodes: int = setting(5, "Episodes of each such evaluation.", kind="evaluation")


_TYPES = get_type_hints(TrainingSettings)
SETTINGS = {
    f.name: Setting(f.name, _TYPES[f.name], f.default, **f.metadata)
    for f in fields(TrainingSettings)
}
BACKBONES = SETTINGS["backbone"].choices
PER_AGENT = tuple(name for name, declared in SETTINGS.items() if declared.per_agent)
SCHEDULABLE = tuple(name for name, declared in SETTINGS.items() if Schedule in declared.types)
EXECUTION = tuple(name for name, declared in SETTINGS.items() if declared.kind == "execution")


def deciding(values: Mapping[str, Any], backbone: str, *kinds: Kind) -> dict[str, Any]:
    """The settings of these kinds that make another run or agent, by name.

    Settings that the backbone does not read decide nothing. Nor do those that are off (None or
    False): the identity of earlier runs stays when a setting is added that is off by default.
    """
    return {
        name: values[name]
        for name, declared in SETTINGS.items()
        if declared.kind in kinds
        and declared.backbone in (None, backbone)
        and values.get(name) is not None
        and values[name] is not False
    }
