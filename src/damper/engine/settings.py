"""The settings of a run: what all agents share, what differs between them, and the checks of both."""

from __future__ import annotations

import functools
import itertools
import json
import operator
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from numbers import Integral
from typing import Any

import torch

from damper.activations import ACTIVATIONS
from damper.engine.custom_code import identify, wrong_env_error
from damper.errors import DamperError, did_you_mean
from damper.method_args import choose
from damper.methods import METHODS, Method, find_method, setting_hint
from damper.presets import preset
from damper.protocols import TRAINING_SEEDS, protocol_name, protocol_settings
from damper.rules import combine_reported
from damper.schedules import POINTS, Schedule, as_schedule, check_number, value_at
from damper.tasks import TASKS, find_task, task_name

PER_AGENT = ("learning_rate", "gamma", "tau", "target_policy_noise", "target_noise_clip", "action_noise", "ent_coef")
_RANGES: dict[str, tuple[float, float]] = {
    "learning_rate": (0.0, 1.0),
    "gamma": (0.0, 1.0),
    "tau": (0.0, 1.0),
    "target_policy_noise": (0.0, 10.0),
    "target_noise_clip": (0.0, 10.0),
    "action_noise": (0.0, 10.0),
    "ent_coef": (0.0, 1e6),
}
BACKBONE_ONLY = {  # settings that the other backbone does not read
    "td3": ("policy_delay", "target_policy_noise", "target_noise_clip", "action_noise"),
    "sac": ("ent_coef",),
}
METHOD_PARTS = ("rule", "auxiliary", "critic")  # arguments that exchange a part of the method
DEFAULT_SEEDS = (0,)
SB3_NETWORKS = ("policy_kwargs", "policy", "activation_fn", "features_extractor_class", "features_extractor_kwargs")
NO_CUSTOM_LAYERS = "all agents' layers are one batch; damper.sb3's classes take layers of your own, by policy_kwargs."
MIN_UPDATES_TO_COMPILE = 100_000  # updates; each is about half a millisecond faster
# Settings that cannot change a result: a resumed run may change them, and an agent's identity leaves them out.
EXECUTION = ("device", "env_threads", "compile", "graph", "log_every", "checkpoint_every", "keep_checkpoint")
_CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "dtype": ("float32", "float64"),
    "backend": ("gymnasium", "envpool"),
    "graph": (True, False, None),
}
_MAY_BE_ZERO = ("learning_starts", "checkpoint_every", "eval_every")  # the other whole numbers are at least 1


@dataclass(frozen=True)
class Settings:
    """All settings of a run; those in ``PER_AGENT`` and the method's own may be tuples, one population member each.

    ``learning_rate`` and the method's numbers may follow the run's progress (``damper.schedules``).

    Where the agents are no product of lists, ``table`` has a row for each: its seed and its value of whatever differs,
    "method" too where methods share their losses (``methods.per_agent``).

    Names are Stable-Baselines3's where it has one. ``env_kwargs`` are the environment's own arguments. Every
    ``eval_every`` steps (0: never) each agent's policy is evaluated on ``eval_episodes`` episodes, and its best one is
    kept. With ``norm_obs`` each agent's networks see observations normalised by their running statistics.
    """

    env: str | Callable[[], Any]
    backbone: str
    method: str
    seeds: tuple[int, ...]
    steps: int
    protocol: str | None = None
    learning_rate: float | Schedule | tuple[float | Schedule, ...] = 3e-4
    buffer_size: int = 1_000_000
    learning_starts: int = 100
    batch_size: int = 256
    tau: float | tuple[float, ...] = 0.005
    gamma: float | tuple[float, ...] = 0.99
    train_freq: int = 1
    gradient_steps: int = 1
    policy_delay: int = 2
    target_policy_noise: float | tuple[float, ...] = 0.2
    target_noise_clip: float | tuple[float, ...] = 0.5
    action_noise: float | tuple[float, ...] = 0.1
    ent_coef: float | str | tuple[float, ...] = "auto"
    net_arch: tuple[int, ...] = (256, 256)
    activation: str = "silu"
    method_settings: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    backend: str = "gymnasium"
    env_threads: int | None = None
    dtype: str = "float32"
    compile: bool = False
    graph: bool | None = None
    tf32: bool = False
    log_every: int = 1000
    checkpoint_every: int = 20_000
    # From here on, settings that came after the first version; a new one goes to the end.
    keep_checkpoint: bool = False
    table: tuple[Mapping[str, Any], ...] = ()
    env_kwargs: Mapping[str, Any] | None = None
    eval_every: int = 0
    eval_episodes: int = 5
    norm_obs: bool = False

    def __post_init__(self) -> None:
        """Functions and texts that stand for schedules become schedules."""
        object.__setattr__(self, "learning_rate", as_schedule("learning_rate", self.learning_rate))
        object.__setattr__(self, "method_settings", _with_schedules(self.method_settings))
        object.__setattr__(self, "table", tuple(map(_with_schedules, self.table)))

    @property
    def unused_settings(self) -> list[str]:
        """Settings away from their defaults that only the other backbone reads."""
        others = (name for backbone, names in BACKBONE_ONLY.items() if backbone != self.backbone for name in names)
        return [name for name in others if getattr(self, name) != getattr(Settings, name)]

    @property
    def env_id(self) -> str:
        """The environment's name for people."""
        return self.env if isinstance(self.env, str) else getattr(self.env, "__name__", type(self.env).__name__)

    @property
    def task(self) -> str | None:
        """The task's name, if it has one (``damper.tasks``)."""
        return task_name(self.env) if isinstance(self.env, str) else None

    def agents(self) -> list[dict[str, Any]]:
        """One row per agent: its seed, and its value of every setting that differs between agents."""
        if self.table:
            return [dict(row) for row in self.table]
        varying = {name: getattr(self, name) for name in PER_AGENT if isinstance(getattr(self, name), tuple)}
        varying |= {name: value for name, value in self.method_settings.items() if isinstance(value, tuple)}
        combinations = itertools.product(*varying.values())
        return [
            {**dict(zip(varying, values, strict=True)), "seed": seed} for values in combinations for seed in self.seeds
        ]

    def per_agent_hparams(self) -> dict[str, torch.Tensor]:
        """The backbone's numbers as ``[P]`` tensors."""
        agents = self.agents()
        numbers = {name: getattr(self, name) for name in PER_AGENT}
        if numbers["ent_coef"] == "auto":
            numbers["ent_coef"] = 1.0
        rows = {name: [float(value_at(agent.get(name, value))) for agent in agents] for name, value in numbers.items()}
        return {name: torch.tensor(values, dtype=torch.float64) for name, values in rows.items()}

    def scheduled(self) -> dict[str, list[Any]]:
        """Each agent's value of every setting that any of them has a schedule for."""
        agents, method_settings = self.agents(), find_method(self.method).settings(self.method_settings)
        shared = {"learning_rate": self.learning_rate, **method_settings}
        columns = {name: [agent.get(name, value) for agent in agents] for name, value in shared.items()}
        return {name: column for name, column in columns.items() if any(isinstance(one, Schedule) for one in column)}

    def method_kwargs(
        self, device: torch.device, dtype: torch.dtype, scheduled: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, dict[str, Any]]:
        """The method's settings by part; what differs between agents, or will change, as ``[P]`` tensors.

        ``scheduled`` are tensors for what follows a schedule; by default they hold its first value.
        """
        agents, method = self.agents(), find_method(self.method)
        values, defaults = dict(self.method_settings), method.settings()
        for name in {name for row in (*agents, self.scheduled()) for name in row} & set(defaults):
            column = [value_at(agent.get(name, values.get(name, defaults[name]))) for agent in agents]
            values[name] = torch.tensor(column, device=device, dtype=dtype)
        values |= {name: tensor for name, tensor in (scheduled or {}).items() if name in defaults}
        if "choice" in defaults:
            names = self.method.split(",")
            values["choice"] = torch.tensor([names.index(agent["method"]) for agent in agents], device=device)
        return method.route(values)

    @property
    def custom(self) -> dict[str, Callable[..., Any]]:
        """The user's code that the settings name, by part: the environment's maker, the losses and the rule."""
        method = find_method(self.method)
        own = {} if isinstance(self.env, str) else {"env": self.env}
        return own if method.is_shipped else own | method.functions

    def custom_code(self) -> dict[str, str]:
        """Module, name and digest of each of these functions, for the manifest."""
        return {part: identify(function) for part, function in self.custom.items()}

    def record(self) -> dict[str, Any]:
        """As plain data, for the manifest; the method's settings with defaults for those that nobody gave."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        method_settings = find_method(self.method).settings(self.method_settings)
        table = [dict(row) for row in self.table]
        return {**record, "env": self.env_id, "method_settings": method_settings, "table": table}


def population_settings(agents: Sequence[Settings]) -> Settings:
    """One population's settings from those of its agents, one seed each.

    Agents may differ in seed, in numbers of their method, and in methods that share their losses.
    """
    known = [find_method(agent.method).settings(agent.method_settings) for agent in agents]
    names = dict.fromkeys(name for own in known for name in own)
    given = {name: [own[name] for own in known if name in own] for name in names}
    shared = {name: values[0] for name, values in given.items() if all(value == values[0] for value in values)}
    methods = tuple(dict.fromkeys(agent.method for agent in agents))
    rows: list[dict[str, Any]] = []
    for agent, own in zip(agents, known, strict=True):
        row = {"method": agent.method} if len(methods) > 1 else {}
        rows.append({**row, **{k: v for k, v in own.items() if k not in shared}, "seed": agent.seeds[0]})
    return check(
        replace(
            agents[0],
            method=",".join(methods),
            seeds=tuple(dict.fromkeys(row["seed"] for row in rows)),
            method_settings=shared,
            table=tuple(rows) if any(len(row) > 1 for row in rows) else (),
        )
    )


def complete_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest's settings, with defaults for settings that are newer than the manifest."""
    later = {f.name: f.default for f in fields(Settings) if f.default is not MISSING}
    known = find_method(record["method"]).settings(record["method_settings"])
    record = {**current_names(record), "protocol": protocol_name(record.get("protocol"))}
    full: dict[str, Any] = json.loads(json.dumps({**later, **record, "method_settings": known}, default=str))
    return full


def current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their current names: ``backend`` was ``envs``; ``overlap``, which was removed, is dropped if off."""
    if "envs" in settings and "backend" in settings:
        raise DamperError("backend must be given by one name, but envs, its old one, was given too: leave that out.")
    removed = {"overlap"} if settings.get("overlap") is False else set()
    return {("backend" if name == "envs" else name): settings[name] for name in settings if name not in removed}


def accept_sb3_names(
    seeds: int | Sequence[int] | None, steps: int | None, given: Mapping[str, Any]
) -> tuple[int | Sequence[int] | None, int | None, dict[str, Any]]:
    """Seeds, steps and the other settings, where Stable-Baselines3's ``seed`` and ``total_timesteps`` may be given.

    Args:
        seeds: as given, or None.
        steps: as given, or None.
        given: the other settings.
    """
    given = current_names(given)
    if "overlap" in given:
        raise DamperError(
            f"overlap must be left out, but {given['overlap']!r} was given: it was removed, since updates run while "
            "the environments step anyway."
        )
    if "total_timesteps" in given:
        if steps is not None:
            raise DamperError("steps and total_timesteps are the same setting, but both were given: leave one out.")
        steps = given.pop("total_timesteps")
    if "seed" in given:
        if seeds is not None:
            raise DamperError("seed is for one agent and seeds for several, but both were given: leave one out.")
        seeds = (given.pop("seed"),)
    return seeds, steps, given


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
    """Complete settings: what was given, over the method's preset for the task, over the protocol's, over defaults.

    ``trained_here=False`` is for plans and other machines' runs: their device may be one that this machine lacks.
    """
    named, steps, given = accept_sb3_names(None if seeds is DEFAULT_SEEDS else seeds, steps, given)
    seeds = DEFAULT_SEEDS if named is None else named
    if not isinstance(env, str) and not callable(env):
        raise wrong_env_error(env)
    if backbone not in BACKBONE_ONLY:
        others = ": damper.sb3 has PPO, DDPG and TQC" if str(backbone).lower() in ("ppo", "ddpg", "tqc") else ""
        raise DamperError(f"backbone must be 'td3' or 'sac', but {backbone!r} was given{others}.")
    chosen = _registered(choose(method, **{part: given.pop(part) for part in METHOD_PARTS if part in given}))
    task = task_name(env) if isinstance(env, str) else None
    if steps is None:
        steps = find_task(env).steps if isinstance(env, str) else None
        if steps is None:
            published = ", ".join(name for name, known_task in TASKS.items() if known_task.steps)
            ids = [known_task.gymnasium_id for known_task in TASKS.values()]
            fix = did_you_mean(env, [*TASKS, *ids], "give steps=, the agent's steps in the environment.")
            raise DamperError(f"steps must be given for {env!r}: only {published} have a published budget; {fix}")
    _check_names(given, chosen)
    known = chosen.settings()
    own = {**preset(chosen.name, task, backbone, preset_name), **{k: v for k, v in given.items() if k in known}}
    shared = {**protocol_settings(protocol, backbone, task), **{k: v for k, v in given.items() if k not in known}}
    shared |= {f.name: _as_integer(shared[f.name]) for f in fields(Settings) if f.type == "int" and f.name in shared}
    shared["env_kwargs"] = shared.get("env_kwargs") or None
    device = shared.get("device", "auto")
    shared["device"] = find_device(device) if trained_here or _is_auto(device) else _device_name(device)
    if _is_auto(shared.setdefault("backend", "auto")):
        pays = shared["device"].startswith("cuda") and not shared["env_kwargs"]
        shared["backend"] = "envpool" if pays and task and _envpool_has(task) else "gymnasium"
    if auto_compile := _is_auto(shared.get("compile", "auto")):
        shared["compile"] = False
    settings = check(
        Settings(
            env=env,
            backbone=backbone,
            method=chosen.name,
            seeds=pick_seeds(seeds, protocol),
            steps=_as_integer(steps.item() if hasattr(steps, "item") else steps),
            protocol=protocol_name(protocol),
            method_settings=_tuples(own),
            **_tuples(shared),
        )
    )
    return replace(settings, compile=_pays_to_compile(settings)) if auto_compile else settings


def _check_names(given: Iterable[str], method: Method) -> None:
    """Refuse names that are neither a setting of the run nor one of the method."""
    names = {f.name for f in fields(Settings)} - {"env", "backbone", "method", "method_settings"}
    for name in given:
        if name not in names and name not in method.settings():
            hint = NO_CUSTOM_LAYERS if name in SB3_NETWORKS else setting_hint(name, method, names)
            raise DamperError(f"{name} is no setting of the run or of method {method.name!r}: {hint}")


def _as_integer(value: Any) -> Any:
    """A float that is a whole number (1e6) as an integer; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _fastest_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@functools.cache
def _envpool_has(task: str) -> bool:
    """Whether EnvPool is installed here, with this task."""
    try:
        import envpool
    except ImportError:
        return False
    return TASKS[task].envpool_id in envpool.list_all_envs()


def _pays_to_compile(settings: Settings) -> bool:
    """Whether a run on a GPU has enough updates to win back the time that compiling takes."""
    updates = (settings.steps - settings.learning_starts) // settings.train_freq * settings.gradient_steps
    able = any(map(shutil.which, ("cc", "gcc", "clang")))  # Triton builds its launchers with a C compiler
    return settings.device.startswith("cuda") and updates >= MIN_UPDATES_TO_COMPILE and able


def _registered(method: str | Method) -> Method:
    """The method that a run's files can name: an object must be the one that its name stands for."""
    chosen = find_method(method)
    if isinstance(method, Method) and chosen.name not in METHODS and "+" not in chosen.name:
        raise DamperError(
            f"method {chosen.name!r} must be known by its name, but is not: set damper.METHODS[{chosen.name!r}] first."
        )
    if find_method(chosen.name) != chosen:
        raise DamperError(f"method {chosen.name!r} is another one in damper.METHODS: give yours another name.")
    return chosen


def pick_seeds(seeds: int | Sequence[int], protocol: str | None) -> tuple[int, ...]:
    """A number means that many of the protocol's seeds, or 0, 1, ... without one."""
    if isinstance(seeds, int | Integral):  # NumPy's too
        count = operator.index(seeds)
        if isinstance(seeds, bool) or count < 1:
            raise DamperError(f"seeds must be at least 1, or different integers, but {seeds} was given.")
        if protocol and count > len(TRAINING_SEEDS):
            raise DamperError(f"seeds must be at most {len(TRAINING_SEEDS)} with a protocol, but {seeds} was given.")
        return TRAINING_SEEDS[:count] if protocol else tuple(range(count))
    try:
        return tuple(operator.index(seed) for seed in seeds)
    except TypeError as error:
        raise DamperError(f"seeds must be whole numbers, or how many of them, but {seeds!r} was given.") from error


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, a list of one as its value, numpy's and torch's as Python's; net_arch stays a tuple."""
    out = {}
    for name, value in values.items():
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, list | tuple):
            value = tuple(value)
            value = value[0] if len(value) == 1 and name != "net_arch" else value
        out[name] = value
    return out


def check(settings: Settings) -> Settings:
    """Refuse what cannot be trained, in one sentence; the same settings, the device by its name."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    for name, value in values.items():
        if isinstance(value, tuple) and name not in (*PER_AGENT, "seeds", "net_arch", "table"):
            raise DamperError(f"{name} must be one value for the whole population, but {len(value)} were given.")
    sampled = _with_schedules_sampled(settings)
    for name, (low, high) in _RANGES.items():
        automatic = name == "ent_coef" and values[name] == "auto"
        given = [value for value in _each(values[name]) if not isinstance(value, Schedule)]
        for value in () if automatic else (*given, *(row[name] for row in sampled.table if name in row)):
            _check_number(name, value, low, high)
    for name in (f.name for f in fields(settings) if f.type == "int"):
        _check_integer(name, values[name], 0 if name in _MAY_BE_ZERO else 1)
    switches = {f.name: (True, False) for f in fields(settings) if f.type == "bool"}
    for name, choices in (_CHOICES | switches).items():
        if values[name] not in choices:
            raise DamperError(f"{name} must be one of {', '.join(map(str, choices))}, but {values[name]!r} was given.")
    sizes = settings.net_arch
    if not isinstance(sizes, tuple) or not sizes or not all(isinstance(size, int | float) for size in sizes):
        shown = " ".join(repr(sizes).split())
        raise DamperError(f"net_arch must be a list of layer sizes, but {shown} was given: {NO_CUSTOM_LAYERS}")
    for size in sizes:
        _check_integer("net_arch", size, 1)
    if not settings.seeds or len(set(settings.seeds)) < len(settings.seeds):
        raise DamperError(f"seeds must be one or more different integers, but {settings.seeds} was given.")
    settings = replace(settings, device=_device_name(settings.device))
    _check_env_kwargs(settings)
    if settings.graph and not settings.device.startswith("cuda"):
        raise DamperError(f"graph needs device='cuda', but device={settings.device!r} was given: leave graph out.")
    _check_method(sampled)
    for name, value in (*((name, values[name]) for name in PER_AGENT), *settings.method_settings.items()):
        if len(set(_each(value))) < len(_each(value)):
            raise DamperError(
                f"{name} must have different values, one agent each, but {value} was given: the same agent twice is no "
                "second seed."
            )
    return settings


def _check_env_kwargs(settings: Settings) -> None:
    given = settings.env_kwargs
    if given is None:
        return
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise DamperError(
            f"env_kwargs must be a dict of the environment's arguments, but {given!r} was given: {{'name': value}}."
        )
    for name, value in given.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise DamperError(
                f"env_kwargs must hold what JSON can record, but {name} is {value!r}: give it inside a callable that "
                "makes the environment."
            ) from error
    if settings.backend == "envpool":
        raise DamperError(
            f"env_kwargs must be left out with backend='envpool', whose environments are what their id names, but "
            f"{given} was given: use backend='gymnasium'."
        )


def is_number(value: Any) -> bool:
    """Whether a value may differ between agents: a number, and no flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_schedules(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_schedule(name, value) for name, value in values.items()}


def _with_schedules_sampled(settings: Settings) -> Settings:
    """The settings with one agent for every point of each agent's schedules, so that checks see all their values."""
    scheduled = settings.scheduled()
    if not scheduled:
        return settings
    rows = (
        {**agent, **{name: column[i](point) for name, column in scheduled.items() if isinstance(column[i], Schedule)}}
        for i, agent in enumerate(settings.agents())
        for point in POINTS
    )
    return replace(settings, table=tuple(rows))


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    if not isinstance(value, int | float) or not low <= value <= high:
        others = {"ent_coef": ", or 'auto' for all agents", "learning_rate": ", or a schedule as linear:0.001:0"}
        more = others.get(name, "")
        raise DamperError(f"{name} must be a number in [{low:g}, {high:g}]{more}, but {value!r} was given.")


def _check_integer(name: str, value: Any, low: int) -> None:
    if not isinstance(value, int) or value < low:
        raise DamperError(f"{name} must be a whole number of at least {low}, but {value!r} was given.")


def find_device(device: str | int | torch.device = "auto") -> str:
    """The name of a device of this machine; "auto" is a GPU where there is one."""
    name = _fastest_device() if _is_auto(device) else _device_name(device)
    count = torch.cuda.device_count()
    if name != "cpu" and (torch.device(name).index or 0) >= count:
        raise DamperError(
            f"device must be one that this machine has, but {str(device)!r} was given and {count} CUDA devices were "
            "found: use device='cpu'."
        )
    return name


def _device_name(device: str | int | torch.device) -> str:
    """The device's name, if the engine can train on its kind."""
    try:
        kind = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise DamperError(f"device must be 'cpu' or 'cuda', but {device!r} was given.") from error
    if kind.type not in ("cpu", "cuda"):
        raise DamperError(f"device must be 'cpu' or 'cuda', but {str(device)!r} was given: use device='cpu'.")
    return "cpu" if kind.type == "cpu" else str(kind)


def _check_method(settings: Settings) -> None:
    """Refuse settings of the method that its losses or its rule cannot take."""
    method = find_method(settings.method)
    defaults = method.settings()
    for name, value in settings.method_settings.items():
        if isinstance(value, tuple) and not is_number(defaults[name]):
            raise DamperError(f"{name} must be one value for the whole population, but {len(value)} were given.")
        for one in _each(value):
            if isinstance(one, Schedule) and not is_number(defaults[name]):
                raise DamperError(f"{name} must be one value for the whole run, but the schedule {one!r} was given.")
            if is_number(defaults[name]):
                check_number(name, one)
    if not settings.agents():
        raise DamperError("a setting given as a list must have at least one value, but an empty list was given.")
    method_kwargs = settings.method_kwargs(torch.device("cpu"), torch.float64)
    if method.rule:
        ones = torch.ones(len(settings.agents()), 1, dtype=torch.float64)
        combine_reported(method.rule, ones, ones, None, **method_kwargs["rule"])
