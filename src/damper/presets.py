"""Published settings of the methods as data, per task and backbone."""

from __future__ import annotations

from collections.abc import Mapping

from damper.errors import DamperError
from damper.methods import components, find_method
from damper.tasks import PAPER_TASKS, task_name

# By setting: one value for all tasks, or one per task, where None stands for every task not listed.
Values = Mapping[str, float | Mapping[str | None, float]]


def _row(*values: float) -> dict[str | None, float]:
    """One value per task of the paper, in the order of its columns."""
    if len(values) != len(PAPER_TASKS):
        raise DamperError(
            f"presets must have a value for each of tasks.PAPER_TASKS, {', '.join(PAPER_TASKS)}, "
            f"but {len(values)} were given: any other task belongs in tasks.TASKS only."
        )
    return dict(zip(PAPER_TASKS, values, strict=True))


_L2C2 = {"sigma": 1.0, "lambda_low": 0.01, "lambda_high": 1.0, "beta": 0.1}
_RULES_WITH_ETA = ("damper", "unconditional-sum", "unconditional-projection")

# From the paper's appendix, "Experimental Details", which takes its weights from PAVE (Appendix E.1
# there). It does not say whether the ablations use the main table's η; here they do.
_BOTH: dict[str, Values] = {
    "caps": {
        "lambda_T": _row(0.1, 1.0, 0.1, 0.1, 0.1, 0.1),
        "lambda_S": _row(0.5, 5.0, 0.5, 0.5, 0.5, 0.5),
        "sigma": 0.2,
    },
    "grad-caps": {"lambda_T": 1.0},
    "asap": {
        "lambda_T": _row(0.005, 0.005, 0.1, 0.05, 0.07, 0.05),
        "lambda_S": _row(0.03, 0.03, 0.1, 0.3, 0.3, 0.3),
        "lambda_P": 2.0,
    },
    "l2c2": _L2C2,
    "l2c2-released": _L2C2,
}
_PAPER: dict[str, dict[str, Values]] = {
    "td3": {
        **_BOTH,
        "pave": {
            "lambda_1": _row(0.1, 2.0, 0.1, 0.1, 0.1, 0.1),
            "lambda_2": _row(0.1, 0.005, 0.1, 0.005, 0.005, 0.1),
            "lambda_3": _row(0.01, 2.0, 0.01, 0.5, 0.5, 0.01),
            "sigma": 0.01,
            "delta": 1.0,
        },
        **{rule: {"eta": _row(0.8, 1.0, 1.0, 0.0, 1.0, 1.0)} for rule in _RULES_WITH_ETA},
    },
    "sac": {
        **_BOTH,
        "pave": {
            "lambda_1": _row(0.1, 0.1, 0.1, 0.1, 2.0, 2.0),
            "lambda_2": _row(0.5, 0.005, 0.0005, 0.0005, 0.0005, 0.005),
            "lambda_3": _row(0.05, 0.5, 1.0, 1.0, 3.0, 2.0),
            "sigma": 0.01,
            "delta": 1.0,
        },
        **{rule: {"eta": _row(1.0, 1.0, 0.8, 0.0, 0.0, 1.0)} for rule in _RULES_WITH_ETA},
    },
}

# Settings in the released code of ASAP and L2C2, where they differ from the paper's; both train
# SAC.
_ASAP_RELEASED: Values = {
    "lambda_T": 0.5,
    "lambda_S": {**_row(10.0, 5.0, 5.0, 30.0, 10.0, 5.0), None: 5.0},
    "lambda_P": 2.0,
}
_L2C2_RELEASED: Values = {
    "lambda_low": {"Pendulum": 1.0, None: 0.1},
    "lambda_high": {"Pendulum": 100.0, None: 10.0},
}
PRESETS: dict[str, dict[str, dict[str, Values]]] = {
    "paper": _PAPER,
    "asap-released": {"sac": {"asap": _ASAP_RELEASED}},
    "l2c2-released": {"sac": {"l2c2": _L2C2_RELEASED, "l2c2-released": _L2C2_RELEASED}},
}


def preset(method: str, task: str | None, backbone: str, name: str = "paper") -> dict[str, float]:
    """Published settings of a method, by the names users write.

    Args:
        method: a name in ``damper.METHODS``, or a composed one such as "damper+caps+pave".
        task: the task's name or environment id; for None or a task outside the paper only settings
            that hold for all tasks are returned.
        backbone: "td3" or "sac".
        name: "paper", or a method's released settings where they differ: "asap-released",
            "l2c2-released" (SAC).
    """
    if name not in PRESETS:
        raise DamperError(f"preset must be one of {', '.join(PRESETS)}, but {name!r} was given.")
    if backbone not in _PAPER:
        raise DamperError(f"backbone must be 'td3' or 'sac', but {backbone!r} was given.")
    published = PRESETS[name].get(backbone, {})
    sources = dict(zip(("actor", "rule", "critic"), components(method), strict=True))
    if name != "paper" and not published.keys() & set(sources.values()):
        (released_with,) = PRESETS[name]
        methods = " or ".join(map(repr, PRESETS[name][released_with]))
        raise DamperError(
            f"preset {name!r} is for method {methods} with backbone {released_with!r}, but method "
            f"{method!r} with backbone {backbone!r} was given: leave the preset at 'paper'."
        )
    chosen = find_method(method)
    names, settings = chosen.settings(), {}
    column = task_name(task) if task else None
    for part, its_settings in chosen.parts().items():
        source = sources[part] or ""
        values = {**_PAPER[backbone].get(source, {}), **published.get(source, {})}
        for key, value in values.items():
            at_task = value.get(column, value.get(None)) if isinstance(value, Mapping) else value
            if at_task is not None and key in its_settings:
                settings[f"{part}_{key}" if f"{part}_{key}" in names else key] = at_task
    return settings
