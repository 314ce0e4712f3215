"""Methods as data: which losses, which rule, which weights; ``METHODS`` lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from damper.errors import DamperError, did_you_mean
from damper.interface import Loss, Noise
from damper.losses.asap import asap
from damper.losses.caps import caps
from damper.losses.grad_caps import grad_caps
from damper.losses.l2c2 import l2c2_actor, l2c2_critic
from damper.losses.l2c2_released import l2c2_released_actor, l2c2_released_critic
from damper.losses.pave import pave
from damper.losses.temporal import temporal
from damper.losses.temporal_ramp import temporal_ramp
from damper.rules import RULES, settings_of

T = TypeVar("T")


@dataclass(frozen=True)
class Method:
    """A way to make a policy smooth.

    Attributes:
        name: as the user writes it.
        actor: the smoothness loss on the actor, or None.
        rule: how its gradient is combined with that of the actor's own loss: a name in
            ``damper.rules.RULES``, or None to add the two losses.
        critic: the smoothness loss on the critic, or None; always added to the critic's own.
        defaults: settings whose defaults differ from those of the losses and the rule.
    """

    name: str
    actor: Loss | None = None
    rule: str | None = None
    critic: Loss | None = None
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What its rule, or else its loss, does: the first line of that module's docstring."""
        functions = self.functions
        if not functions:
            return "the backbone as it is, nothing made smooth."
        rules = [functions[part] for part in functions if part.startswith("rule")]
        described = inspect.getmodule([*rules, *functions.values()][0])
        return (inspect.getdoc(described) or "").partition("\n")[0]

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Its smoothness losses, the actor's before the critic's."""
        return tuple(loss for loss in (self.actor, self.critic) if loss is not None)

    @property
    def noise(self) -> dict[str, Noise]:
        """All draws that its losses need, by name."""
        return {name: noise for loss in self.losses for name, noise in loss.noise.items()}

    @property
    def previous_obs(self) -> bool:
        """Whether a loss needs the previous observation."""
        return any(loss.previous_obs for loss in self.losses)

    @property
    def prediction(self) -> bool:
        """Whether a loss needs the actor's second head."""
        return any(loss.prediction for loss in self.losses)

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """The functions it is made of, by part: actor loss, critic loss, rules."""
        losses = {"actor": self.actor, "critic": self.critic}
        functions = {part: loss.function for part, loss in losses.items() if loss}
        rules = [name for name in (self.rule or "").split(",") if name in RULES]
        return {**functions, **{f"rule {name}": RULES[name] for name in rules}}

    @property
    def is_shipped(self) -> bool:
        """Whether its name and rule mean what damper ships, none of them registered anew."""
        names, rules = self.name.replace(",", "+").split("+"), (self.rule or "").split(",")
        registered = all(METHODS.get(name) == _SHIPPED.get(name) for name in names)
        return registered and all(RULES.get(rule) is _SHIPPED_RULES.get(rule) for rule in rules)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Settings and defaults by part, with ``inspect.Parameter.empty`` for no default."""
        parts = {
            "actor": dict(self.actor.settings) if self.actor else {},
            "rule": dict(settings_of(self.rule)) if self.rule else {},
            "critic": dict(self.critic.settings) if self.critic else {},
        }
        for settings in parts.values():
            settings.update({k: v for k, v in self.defaults.items() if k in settings})
        return parts

    def settings(self, given: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """All settings by the names users write: the values given, and defaults for the rest.

        A name that two parts share sets both. Where their defaults differ, ``critic_<name>`` (or
        ``rule_<name>``) sets that part's alone.
        """
        named = dict(given)
        for part, settings in self.parts().items():
            for name, default in settings.items():
                if name not in named:
                    named[name] = default
                elif name not in given and named[name] != default:
                    named.setdefault(f"{part}_{name}", default)
        return named

    def route(self, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Sort values by the parts that take them, with defaults, and check those of the losses."""
        routed = self.parts()
        for part, settings in routed.items():
            for name, default in settings.items():
                settings[name] = values.get(f"{part}_{name}", values.get(name, default))
                if settings[name] is inspect.Parameter.empty:
                    where = "rule" if part == "rule" else f"loss on the {part}"
                    raise DamperError(
                        f"{name} must be given, because the {where} of method {self.name!r} has no "
                        f"default for it: pass {name}=0.1, say, or give the function a default."
                    )
        for part, loss in (("actor", self.actor), ("critic", self.critic)):
            if loss is not None:
                loss.check(routed[part])
        return routed


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("plain"),
        *(Method(rule, actor=temporal, rule=rule) for rule in RULES),
        Method("temporal-ramp", actor=temporal_ramp),
        Method("caps", actor=caps),
        Method("grad-caps", actor=grad_caps),
        Method("asap", actor=asap),
        Method("l2c2", actor=l2c2_actor, critic=l2c2_critic),
        Method("l2c2-released", actor=l2c2_released_actor, critic=l2c2_released_critic),
        Method("pave", critic=pave),
    )
}
_SHIPPED, _SHIPPED_RULES = dict(METHODS), dict(RULES)


class Components(NamedTuple):
    """A method's parts, each by the name of its method; the auxiliary loss may be "temporal"."""

    auxiliary: str | None = None
    rule: str | None = None
    critic: str | None = None


def _auxiliaries() -> dict[str, Loss]:
    without_rule = {name: method.actor for name, method in METHODS.items() if not method.rule}
    return {"temporal": temporal, **{name: loss for name, loss in without_rule.items() if loss}}


def _critics() -> dict[str, Loss]:
    return {name: method.critic for name, method in METHODS.items() if method.critic}


def compose(
    auxiliary: str = "temporal", rule: str | None = "damper", critic: str | None = None
) -> Method:
    """Combine an actor loss, a rule and a critic loss; ``find_method`` understands its name.

    Args:
        auxiliary: a method with an actor loss ("caps", "grad-caps", ...), or "temporal".
        rule: how its gradient is combined with that of the actor's own loss, a name in
            ``damper.rules.RULES``; None adds the two losses.
        critic: a method with a critic loss ("pave", "l2c2"), or None.
    """
    actor = _pick("auxiliary must name a method with an actor loss", auxiliary, _auxiliaries())
    if rule is not None:
        _pick("rule must be one of damper.rules.RULES", rule, RULES)
    value = None
    if critic is not None:
        value = _pick("critic must name a method with a critic loss", critic, _critics())
    elif rule is None and auxiliary in _critics():
        raise DamperError(
            f"rule must be given to use only the actor loss of {auxiliary!r}, because without one "
            "the name means the method with its critic loss, but rule=None was given: "
            "rule='scalarization' adds the actor loss alone."
        )
    # The name leaves "temporal" out ("damper+pave"), unless the critic's name could then be read as
    # the auxiliary's.
    silent = auxiliary == "temporal" and rule is not None and critic not in _auxiliaries()
    name = "+".join(part for part in (rule, None if silent else auxiliary, critic) if part)
    return Method(name, actor=actor, rule=rule, critic=value)


def merge_methods(names: Sequence[str]) -> Method:
    """Merge methods that share their losses, so that agents of a population differ in the rule.

    Its setting ``choice`` is each agent's index into ``names``; "plain" goes with any rule.
    """
    methods = [find_method(name) for name in names]
    smooth = next((method for method in methods if method.losses), methods[0])
    alike = (method.losses == smooth.losses and method.rule for method in methods if method.losses)
    if not smooth.rule or not all(alike):
        raise DamperError(
            "methods of one population must have the same losses and differ only in the rule, but "
            f"{', '.join(names)} were given: train each as a population of its own."
        )
    rules = ",".join(method.rule or "plain" for method in methods)
    return Method(",".join(names), smooth.actor, rules, smooth.critic)


def components(name: str) -> Components:
    """Split a method's name into its parts."""
    if name not in METHODS:
        return _parse(name)
    method = METHODS[name]
    auxiliary = ("temporal" if method.rule else name) if method.actor else None
    return Components(auxiliary, method.rule, name if method.critic else None)


def find_method(method: str | Method) -> Method:
    """The method of that name, composed for "a+b", merged for "a,b"; or ``method`` itself."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        fix = "'plain' trains without smoothing"
        if callable(method):
            fix = "add your rule to damper.rules.RULES, or make a damper.Method from your loss"
        requirement = "method must be a name in damper.METHODS or a damper.Method"
        raise DamperError(f"{requirement}, but {method!r} was given: {fix}.")
    if "," in method:
        return merge_methods(method.split(","))
    if method in METHODS:
        return METHODS[method]
    parts = _parse(method)
    return compose(parts.auxiliary or "temporal", parts.rule, parts.critic)


def setting_hint(name: str, method: Method, others: Iterable[str] = ()) -> str:
    """Suggest a fix for a setting that ``method`` does not have; ``others`` are of no method."""
    settings = method.settings()
    takes = f"method {method.name!r} takes {', '.join(settings) or 'no settings'}."
    rules = [rule for rule in RULES if name in settings_of(rule)]
    owners = rules or [key for key, other in METHODS.items() if name in other.settings()]
    if owners:  # another method's setting is not a misspelling
        kind = "rules" if rules else "methods"
        more = ", ..." if len(owners) > 3 else ""
        return f"it belongs to the {kind} ({', '.join(owners[:3])}{more}), while {takes}"
    return did_you_mean(name, [*others, *settings], takes)


def _parse(name: str) -> Components:
    """Split ``[rule]+[auxiliary]+[critic]``."""
    parts = str(name).split("+")
    rule = parts.pop(0) if parts[0] in RULES else None
    named = bool(parts) and parts[0] in _auxiliaries()
    auxiliary = parts.pop(0) if named else "temporal"
    critic = parts.pop(0) if parts else None
    if parts or not (rule or named) or (critic and critic not in _critics()):
        for part in str(name).split("+"):
            _pick("method must be one of damper.METHODS", part, {**METHODS, "temporal": None})
        form = "rule+auxiliary+critic, as in 'damper+grad-caps+pave'"
        raise DamperError(f"method must read {form}, but is {name!r}.")
    return Components(auxiliary, rule, critic)


def _pick(requirement: str, name: str, choices: Mapping[str, T]) -> T:
    if name not in choices:
        hint = did_you_mean(name, choices, f"choose one of {', '.join(sorted(choices))}.")
        raise DamperError(f"{requirement}, but {name!r} was given: {hint}")
    return choices[name]
