"""Complete settings: given values, presets, the protocol, defaults, and what runs fastest here."""

from __future__ import annotations

import functools
import operator
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

from damper.engine.settings.checks import NO_CUSTOM_LAYERS, check_settings
from damper.engine.settings.devices import device_name, find_device
from damper.engine.settings.settings import Settings
from damper.errors import DamperError, did_you_mean, wrong_env_error
from damper.method_args import choose
from damper.methods import METHODS, Method, find_method, setting_hint
from damper.presets import preset
from damper.protocols import TRAINING_SEEDS, protocol_settings
from damper.rules import RULES
from damper.settings import BACKBONES, SETTINGS
from damper.tasks import TASKS, find_task, task_name

METHOD_PARTS = ("rule", "auxiliary", "critic")  # arguments that replace a part of the method
DEFAULT_SEEDS = (0,)
SB3_NETWORKS = (
    *("policy_kwargs", "policy", "activation_fn"),
    *("features_extractor_class", "features_extractor_kwargs"),
)
SB3_ONLY = (
    *("n_steps", "target_entropy", "target_update_interval", "optimize_memory_usage"),
    *("use_sde", "sde_sample_freq", "use_sde_at_warmup"),
    *("replay_buffer_class", "replay_buffer_kwargs"),
)
MIN_UPDATES_TO_COMPILE = 100_000  # compiled, each is about half a millisecond faster


def resolve(
    env: str | Callable[[], Any],
    backbone: str = "td3",
    method: str | Method = "damper",
    seeds: int | Sequence[int] = DEFAULT_SEEDS,
    steps: int | None = None,
    protocol: str | None = None,
    preset_name: str = "paper",
    trained_here: bool = True,
    **given: Any,
) -> Settings:
    """Complete settings: given values before the method's preset, the protocol and defaults.

    ``trained_here=False`` is for other machines' runs, whose device this machine may lack.
    """
    # By identity: the default seeds given by a user are a choice, beside which `seed` is a mistake.
    named, steps, given = accept_sb3_names(None if seeds is DEFAULT_SEEDS else seeds, steps, given)
    seeds = DEFAULT_SEEDS if named is None else named
    if not isinstance(env, str) and not callable(env):
        raise wrong_env_error(env)
    _check_backbone(backbone)
    if callable(given.get("rule")):
        given["rule"] = _rule_name(given["rule"])
    parts = {part: given.pop(part) for part in METHOD_PARTS if part in given}
    chosen = _registered(choose(method, **parts))
    steps = _published_steps(env) if steps is None else steps
    _check_names(given, chosen)
    task = task_name(env) if isinstance(env, str) else None
    method_settings = preset(chosen.name, task, backbone, preset_name)
    shared = {**protocol_settings(protocol, backbone, task), "steps": steps}
    for name, value in given.items():
        (method_settings if name in chosen.settings() else shared)[name] = value
    shared = _tuples(shared)
    for name, value in shared.items():
        if SETTINGS[name].type is int and isinstance(value, float) and value.is_integer():
            shared[name] = int(value)  # 1e6
    auto_compile = _resolve_execution(shared, task, trained_here)
    settings = check_settings(
        Settings(
            env=env,
            backbone=backbone,
            method=chosen.name,
            seeds=pick_seeds(seeds, protocol),
            protocol=protocol,
            method_settings=_tuples(method_settings),
            **shared,
        )
    )
    # Last, since it depends on the number of updates, of settings that are known to be numbers.
    return replace(settings, compile=_pays_to_compile(settings)) if auto_compile else settings


def _resolve_execution(shared: dict[str, Any], task: str | None, trained_here: bool) -> bool:
    """Choose device and backend where they are "auto"; return whether ``compile`` is too."""
    device = shared.get("device", "auto")
    find = find_device if trained_here or device == "auto" else device_name
    shared["device"] = find(device)
    shared["env_kwargs"] = shared.get("env_kwargs") or None
    if shared.setdefault("backend", "auto") == "auto":
        # EnvPool makes environments as registered, so arguments of theirs rule it out.
        pays = shared["device"].startswith("cuda") and not shared["env_kwargs"]
        shared["backend"] = "envpool" if pays and task and _envpool_has(task) else "gymnasium"
    if shared.get("compile", "auto") != "auto":
        return False
    shared["compile"] = False
    return True


def accept_sb3_names(
    seeds: int | Sequence[int] | None, steps: int | None, given: Mapping[str, Any]
) -> tuple[int | Sequence[int] | None, int | None, dict[str, Any]]:
    """Seeds, steps and the other settings from those given, which may be Stable-Baselines3's.

    Those are ``seed``, ``total_timesteps`` and ``train_freq=(4, "step")``.
    """
    given = dict(given)
    freq = given.get("train_freq")
    if isinstance(freq, tuple | list) and len(freq) == 2 and isinstance(freq[1], str):
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


def population_settings(agents: Sequence[Settings]) -> Settings:
    """Settings of one population from those of its agents, which have one seed each.

    Agents may differ in seed, in numbers of their method, and in methods that share their losses.
    """
    complete = [find_method(agent.method).settings(agent.method_settings) for agent in agents]
    shared = {}
    for name in dict.fromkeys(name for values in complete for name in values):
        column = [values[name] for values in complete if name in values]
        if all(value == column[0] for value in column):
            shared[name] = column[0]
    methods = tuple(dict.fromkeys(agent.method for agent in agents))
    rows: list[dict[str, Any]] = []
    for agent, values in zip(agents, complete, strict=True):
        row = {"method": agent.method} if len(methods) > 1 else {}
        row |= {name: value for name, value in values.items() if name not in shared}
        rows.append({**row, "seed": agent.seeds[0]})
    return check_settings(
        replace(
            agents[0],
            method=",".join(methods),
            seeds=tuple(dict.fromkeys(row["seed"] for row in rows)),
            method_settings=shared,
            table=tuple(rows) if any(len(row) > 1 for row in rows) else (),
        )
    )


def pick_seeds(seeds: int | Sequence[int], protocol: str | None) -> tuple[int, ...]:
    """Seeds as given; a number means that many of the protocol's, without one 0, 1, ..."""
    if isinstance(seeds, int | Integral):  # NumPy's too
        count = operator.index(seeds)
        if isinstance(seeds, bool) or count < 1:
            raise DamperError(
                f"seeds must be at least 1, or different integers, but {seeds} was given."
            )
        if protocol and count > len(TRAINING_SEEDS):
            most = len(TRAINING_SEEDS)
            raise DamperError(
                f"seeds must be at most {most} with a protocol, but {seeds} was given."
            )
        return TRAINING_SEEDS[:count] if protocol else tuple(range(count))
    try:
        return tuple(operator.index(seed) for seed in seeds)
    except TypeError as error:
        raise DamperError(
            f"seeds must be a list of whole numbers, or a number of seeds, but {seeds!r} was given."
        ) from error


def _check_backbone(backbone: str) -> None:
    if backbone not in BACKBONES:
        named = str(backbone).lower()
        others = ": damper.sb3 has PPO, DDPG and TQC" if named in ("ppo", "ddpg", "tqc") else ""
        raise DamperError(f"backbone must be 'td3' or 'sac', but {backbone!r} was given{others}.")


def _published_steps(env: str | Callable[[], Any]) -> int:
    """The task's published budget; raises for other environments."""
    steps = find_task(env).steps if isinstance(env, str) else None
    if steps is not None:
        return steps
    published = ", ".join(name for name, task in TASKS.items() if task.steps)
    ids = [task.gymnasium_id for task in TASKS.values()]
    fix = did_you_mean(env, [*TASKS, *ids], "give steps=, the agent's steps in the environment.")
    raise DamperError(
        f"steps must be given for {env!r}: only {published} have a published budget; {fix}"
    )


def _check_names(given: Iterable[str], method: Method) -> None:
    names = SETTINGS.keys() - {"env", "backbone", "method", "method_settings"}
    for name in given:
        if name not in names and name not in method.settings():
            hint = NO_CUSTOM_LAYERS if name in SB3_NETWORKS else setting_hint(name, method, names)
            if name in SB3_ONLY:
                hint = "only the classes of damper.sb3 take it, not the engine."
            raise DamperError(
                f"{name} is not a setting of the run or of method {method.name!r}: {hint}"
            )


def _rule_name(rule: Callable[..., Any]) -> str:
    """The registered name of a rule given as a function: a run's files identify rules by name."""
    for registered, other in RULES.items():
        if other is rule:
            return registered
    name = getattr(rule, "__name__", "mine")
    raise DamperError(
        "rule must be a name in damper.rules.RULES, because a run's files record its name, but "
        f"the function {name} "
        f"was given: set damper.rules.RULES[{name!r}] = {name}, then give rule={name!r}."
    )


def _registered(method: str | Method) -> Method:
    """The method, which must be registered: a run's files identify methods by name."""
    chosen = find_method(method)
    if callable(chosen.rule):
        _rule_name(chosen.rule)
        raise DamperError(
            f"the rule of method {chosen.name!r} must be its name in damper.rules.RULES, but is a "
            "function."
        )
    if isinstance(method, Method) and chosen.name not in METHODS and "+" not in chosen.name:
        raise DamperError(
            f"method {chosen.name!r} must be registered, but is not: set "
            f"damper.METHODS[{chosen.name!r}] first."
        )
    if find_method(chosen.name) != chosen:
        raise DamperError(
            f"method {chosen.name!r} is another method in damper.METHODS: give yours another name."
        )
    return chosen


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, or as their value if it is one and not of net_arch; arrays as numbers."""
    out = {}
    for name, value in values.items():
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, list | tuple):
            value = tuple(value)
            value = value[0] if len(value) == 1 and name != "net_arch" else value
        out[name] = value
    return out


@functools.cache
def _envpool_has(task: str) -> bool:
    """Whether EnvPool is installed and has this task."""
    try:
        import envpool
    except ImportError:
        return False
    return TASKS[task].envpool_id in envpool.list_all_envs()


def _pays_to_compile(settings: Settings) -> bool:
    """Whether a run on a GPU has enough updates to make up for the time that compiling takes."""
    rounds = (settings.steps - settings.learning_starts) // settings.train_freq
    pays = rounds * settings.gradient_steps >= MIN_UPDATES_TO_COMPILE
    # Triton builds its launchers with a C compiler.
    able = any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang"))
    return settings.device.startswith("cuda") and pays and able
