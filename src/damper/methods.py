"""A method is which losses, which rule, which weights: data, not code."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

from damper.errors import DamperError
from damper.losses._interface import Loss, Noise
from damper.losses.temporal import temporal
from damper.rules import RULES, settings_of


@dataclass(frozen=True)
class Method:
    """A way to make a policy smooth.

    Attributes:
        name: as the user writes it.
        actor: the smoothness loss on the actor, or None.
        rule: how its gradient joins the native one: a name in ``damper.rules.RULES``, or None to add the loss.
        critic: the smoothness loss on the critic, or None; always added.
        defaults: settings that differ from the losses' and the rule's own defaults.
    """

    name: str
    actor: Loss | None = None
    rule: str | None = None
    critic: Loss | None = None
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses it has."""
        return tuple(loss for loss in (self.actor, self.critic) if loss is not None)

    @property
    def noise(self) -> dict[str, Noise]:
        """Every draw its losses need, by name."""
        return {name: noise for loss in self.losses for name, noise in loss.noise.items()}

    @property
    def previous_obs(self) -> bool:
        """Whether a loss needs the observation before."""
        return any(loss.previous_obs for loss in self.losses)

    @property
    def prediction(self) -> bool:
        """Whether a loss needs a second head on the actor."""
        return any(loss.prediction for loss in self.losses)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Settings with defaults, by part: actor loss, rule, critic loss."""
        parts = {
            "actor": dict(self.actor.settings) if self.actor else {},
            "rule": settings_of(self.rule) if self.rule else {},
            "critic": dict(self.critic.settings) if self.critic else {},
        }
        return {part: {**own, **{k: v for k, v in self.defaults.items() if k in own}} for part, own in parts.items()}

    def settings(self) -> dict[str, Any]:
        """All settings with defaults, by the name users write.

        A name that two parts have sets both; ``critic_<name>`` (``rule_<name>``) sets that part's alone.
        """
        named: dict[str, Any] = {}
        for part, own in self.parts().items():
            named |= {f"{part}_{name}" if name in named else name: default for name, default in own.items()}
        return named

    def route(self, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """User-named values sorted to the parts that take them, defaults filled in."""
        return {
            part: {name: values.get(f"{part}_{name}", values.get(name, default)) for name, default in own.items()}
            for part, own in self.parts().items()
        }


METHODS: dict[str, Method] = {
    "plain": Method("plain"),
    **{name: Method(name, actor=temporal, rule=name) for name in RULES},
}


def find_method(method: str | Method) -> Method:
    """The method of that name, or the object itself."""
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        close = difflib.get_close_matches(str(method), METHODS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(METHODS))}."
        raise DamperError(f"method must name one of damper.METHODS, but {method!r} was given: {hint}")
    return METHODS[method]
