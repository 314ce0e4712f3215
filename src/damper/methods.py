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
        """What it does in one line: the first line of the docstring of its rule's module, or else its loss's."""
        made_of = self.functions
        own = [*(made_of[part] for part in made_of if part.startswith("rule")), *made_of.values()]
        words = (
            inspect.getdoc(inspect.getmodule(own[0]))
            if own
            else "the backbone as it is, nothing made smooth."
        )
        return (words or "").partition("\n")[0]

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
        found: dict[str, Callable[..., Any]] = {
            part: loss.function for part, loss in losses.items() if loss
        }
        return found | {
            f"rule {name}": RULES[name] for name in (self.rule or "").split(",") if name in RULES
        }

    @property
    def is_shipped(self) -> bool:
        """Whether its name and rule mean what this version of damper ships, none of them registered anew."""
        names, rules = self.name.replace(",", "+").split("+"), (self.rule or "").split(",")
        registered = all(METHODS.get(name) == _SHIPPED.get(name) for name in names)
        return registered and all(RULES.get(rule) is _SHIPPED_RULES.get(rule) for rule in rules)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Settings and defaults by part: actor loss, rule, critic loss; ``inspect.Parameter.empty`` for no default."""
        parts = {
            "actor": dict(self.actor.settings) if self.actor else {},
            "rule": settings_of(self.rule) if self.rule else {},
            "critic": dict(self.critic.settings) if self.critic else {},
        }
        return {
            part: {**own, **{k: v for k, v in self.defaults.items() if k in own}}
            for part, own in parts.items()
        }

    def settings(self, given: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """All settings by the names users write: the values given, and defaults for the rest.

        A name that two parts share sets both. Where their defaults differ, ``critic_<name>`` (or
        ``rule_<name>``) sets that part's alone.
        """
        named = dict(given)
        for part, own in self.parts().items():
            for name, default in own.items():
                if name not in named:
                    named[name] = default
                elif name not in given and named[name] != default:
                    named.setdefault(f"{part}_{name}", default)
        return named

    def route(self, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Sort values by the parts that take them, fill in defaults, and check the values of the losses."""
        method_kwargs = {
            part: {
                name: values.get(f"{part}_{name}", values.get(name, default))
                for name, default in own.items()
            }
            for part, own in self.parts().items()
        }
        for part, name in ((part, name) for part, own in method_kwargs.items() for name in own):
            if method_kwargs[part][name] is inspect.Parameter.empty:
                where = "rule" if part == "rule" else f"loss on the {part}"
                raise DamperError(
                    f"{name} must be given, because the {where} of method {self.name!r} has no "
                    "default for it: pass, "
                    f"for instance, {name}=0.1, or add a default to the function's signature."
                )
        for part, loss in (("actor", self.actor), ("critic", self.critic)):
            if loss is not None:
                loss.check(method_kwargs[part])
        return method_kwargs


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
    """A method's parts, each by the name of the method it comes from; the auxiliary loss may be "temporal"."""

    auxiliary: str | None = None
    rule: str | None = None
    critic: str | None = None


def _auxiliaries() -> dict[str, Loss]:
    own = {
        name: method.actor for name, method in METHODS.items() if method.actor and not method.rule
    }
    return {"temporal": temporal, **own}


def _critics() -> dict[str, Loss]:
    return {name: method.critic for name, method in METHODS.items() if method.critic}


def compose(
    auxiliary: str = "temporal", rule: str | None = "damper", critic: str | None = None
) -> Method:
    """Combine one method's actor loss, any rule and another method's critic loss: ``damper+grad-caps+pave``.

    Args:
        auxiliary: a method with an actor loss ("caps", "grad-caps", ...), or "temporal".
        rule: how its gradient is combined with that of the actor's own loss, a name in
            ``damper.rules.RULES``; None adds the two losses.
        critic: a method with a critic loss ("pave", "l2c2"), or None.

    Returns:
        A method whose name ``find_method`` understands.
    """
    actor = _pick("auxiliary must name a method with an actor loss", auxiliary, _auxiliaries())
    if rule is not None:
        _pick("rule must be one of damper.rules.RULES", rule, RULES)
    value = (
        _pick("critic must name a method with a critic loss", critic, _critics())
        if critic is not None
        else None
    )
    if (
        rule is None
        and critic is None
        and auxiliary in METHODS
        and METHODS[auxiliary].critic is not None
    ):
        raise DamperError(
            f"rule must be given to use only the actor loss of {auxiliary!r}, because without a "
            "rule the name means "
            "the method with its critic loss, but rule=None was given: rule='scalarization' adds "
            "the actor loss alone."
        )
    # The name leaves "temporal" out ("damper+pave"), unless the critic's name could then be read as
    # the auxiliary's.
    silent = auxiliary == "temporal" and rule is not None and critic not in _auxiliaries()
    name = "+".join(part for part in (rule, None if silent else auxiliary, critic) if part)
    return Method(name, actor=actor, rule=rule, critic=value)


def merge_methods(names: Sequence[str]) -> Method:
    """Merge methods that share their losses into one, so that agents of a population may differ in the rule.

    Its setting ``choice`` is each agent's index into ``names``. "plain" goes with any rule on the
    actor's loss.
    """
    methods = [find_method(name) for name in names]
    smooth = next((method for method in methods if method.losses), methods[0])
    alike = (method.losses == smooth.losses and method.rule for method in methods if method.losses)
    if not smooth.rule or not all(alike):
        raise DamperError(
            "methods of one population must have the same losses and differ only in the rule, but "
            f"{', '.join(names)} "
            "were given: train each as a population of its own."
        )
    rules = ",".join(method.rule or "plain" for method in methods)
    return Method(",".join(names), smooth.actor, rules, smooth.critic)


def components(name: str) -> Components:
    """Split a method's name into its parts."""
    if name not in METHODS:
        return Components(*_parse(name))
    method = METHODS[name]
    auxiliary = "temporal" if method.rule else name
    return Components(
        auxiliary if method.actor else None, method.rule, name if method.critic else None
    )


def find_method(method: str | Method) -> Method:
    """The method of that name, or ``method`` itself; "a+b" is composed by ``compose``, "a,b" by ``merge_methods``."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        own = "add your rule to damper.rules.RULES, or make a damper.Method from your loss"
        fix = own if callable(method) else "'plain' trains without smoothing"
        raise DamperError(
            f"method must be a name in damper.METHODS or a damper.Method, but {method!r} was "
            f"given: {fix}."
        )
    if "," in method:
        return merge_methods(method.split(","))
    return METHODS[method] if method in METHODS else compose(*_parse(method))


def setting_hint(name: str, method: Method, others: Iterable[str] = ()) -> str:
    """Suggest a fix for a setting that ``method`` does not have; ``others`` are settings that belong to no method."""
    known = method.settings()
    takes = f"method {method.name!r} takes {', '.join(known) or 'no settings'}."
    rules = [rule for rule in RULES if name in settings_of(rule)]
    owners = rules or [other for other, its in METHODS.items() if name in its.settings()]
    if owners:  # another method's setting is not a misspelling
        kind = "rules" if rules else "methods"
        more = ", ..." if len(owners) > 3 else ""
        return f"it belongs to the {kind} ({', '.join(owners[:3])}{more}), while {takes}"
    return did_you_mean(name, [*others, *known], takes)


def _parse(name: str) -> tuple[str, str | None, str | None]:
    """Split ``[rule]+[auxiliary]+[critic]`` into the arguments of ``compose``."""
    parts = str(name).split("+")
    rule = parts.pop(0) if parts[0] in RULES else None
    named = bool(parts) and parts[0] in _auxiliaries()
    auxiliary = parts.pop(0) if named else "temporal"
    critic = parts.pop(0) if parts else None
    if parts or not (rule or named) or (critic and critic not in _critics()):
        for part in str(name).split("+"):
            _pick("method must be one of damper.METHODS", part, {**METHODS, "temporal": None})
        raise DamperError(
            "method must read rule+auxiliary+critic, as in 'damper+grad-caps+pave', but is "
            f"{name!r}."
        )
    return auxiliary, rule, critic


def _pick(requirement: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        hint = did_you_mean(name, known, f"choose one of {', '.join(sorted(known))}.")
        raise DamperError(f"{requirement}, but {name!r} was given: {hint}")
    return known[name]
