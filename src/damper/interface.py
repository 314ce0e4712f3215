"""The interface between losses and training code.

The same functions serve the engine (a leading population axis P) and a single agent (none): every
loss reduces over the batch axis and the axes after it, and returns one value per agent.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, get_args, get_origin

import torch
from torch import Tensor

from damper._checks import Setting as Setting
from damper._checks import check_choice, check_flag, check_range, resolved_hints

# Rate of the actor's Polyak average (``Loss.prediction``), updated at every gradient step.
AVERAGE_RATE = 0.01
NoiseDraws = Mapping[str, Tensor]  # noise name → draw


class Batch(NamedTuple):
    """Transitions ``(s, a, r, s', d)``, each ``[..., B, ·]`` (reward and terminated ``[..., B]``).

    ``next_obs`` is the true successor, also at the end of an episode. ``previous_obs`` is the
    observation before ``obs`` (``obs`` itself at an episode's first step), or None if no loss asks
    for it. ``progress`` is the fraction of training already done, in [0, 1]. ``action_scale``,
    ``[A]``, is half the width of the action range: multiply a change in policy units by it to get
    environment units.
    """

    obs: Any
    action: Tensor
    reward: Tensor
    next_obs: Any
    terminated: Tensor
    previous_obs: Any = None
    progress: Tensor | float = 0.0
    action_scale: Tensor | float = 1.0


class Policy(Protocol):
    """The actor as losses see it, its weights bound; calls with one tensor share a forward pass.

    Not to be confused with ``damper.Policy``, a saved actor in the environment's own units.
    """

    @property
    def stochastic(self) -> bool:
        """Whether the actor has a distribution (SAC) or only a deterministic action (TD3)."""

    def __call__(self, obs: Any) -> Tensor:
        """Deterministic action ``μ(s)`` in the actor's own scale, [-1, 1]."""

    def distribution(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh (stochastic actors)."""

    def prediction(self, obs: Any) -> Tensor:
        """The second head's prediction of the next action, before any tanh, where a loss asks."""

    def averaged_prediction(self, obs: Any) -> Tensor:
        """The same prediction by the Polyak average of the whole actor, without gradient."""


class Critic(Protocol):
    """Twin critics with their weights bound."""

    def __call__(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1, Q_2`` for inputs ``[..., B, ·]``, stacked before the batch axis: ``[..., 2, B]``.

        An action ``[..., 2, B, A]`` gives each critic its own copy, for derivatives with respect to
        the action.
        """

    def first(self, obs: Any, action: Tensor) -> Tensor:
        """``Q_1`` alone, ``[..., B]``."""


class CriticWithActionGradients(Critic, Protocol):
    """Twin critics that also provide their derivatives with respect to the action.

    Optional: PAVE uses them if they exist, and else differentiates the critics' values.
    """

    def action_gradients(
        self, observations: Sequence[Tensor], action: Tensor, v: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """``∇ₐQ_j(s, a)`` at each observation, and ``vᵀ∇²ₐₐQ_j v`` at the first.

        All share the action and the direction v, ``[..., B, A]``. The results, ``[..., 2, B, A]``
        and ``[..., 2, B]``, can be differentiated once, with respect to the parameters.
        """


@dataclass(frozen=True)
class Noise:
    """A random draw: its distribution, and whose last axis it has (None: one per sample)."""

    kind: Literal["normal", "uniform", "rademacher"]
    like: Literal["obs", "action"] | None

    def draw(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """One draw: standard normal, uniform in [-1, 1), or -1 and 1 with equal probability."""
        like = {"obs": batch.obs, "action": batch.action, None: batch.reward}[self.like]
        draw = torch.randn if self.kind == "normal" else torch.rand
        values = draw(like.shape, generator=generator, device=like.device, dtype=like.dtype)
        if self.kind == "normal":
            return values
        uniform = 2.0 * values - 1.0
        if self.kind == "uniform":
            return uniform
        return torch.where(uniform < 0, -1.0, 1.0).to(like.dtype)


@dataclass(frozen=True)
class Loss:
    """A loss function, and what it needs from its caller.

    Attributes:
        function: ``(policy, batch, noise, **settings)`` for the actor,
            ``(critic, policy, batch, noise, **settings)`` for the critic; returns one value per
            agent.
        noise: the draws it needs, by name, each from its own random stream; the function gets them
            as a mapping.
        previous_obs: True if the function reads ``batch.previous_obs``, which the caller then
            fills.
        prediction: True if the function calls ``policy.prediction`` or
            ``policy.averaged_prediction``: the actor then has that second head and a Polyak
            average, updated at ``AVERAGE_RATE``.
        reads_outputs_only: True if the function evaluates networks only at inputs made of batch and
            noise, and uses only their outputs: no derivative with respect to an input, no output as
            an input. Such losses share forward passes in a compiled update; the claim is tested on
            a small agent before anything is compiled.
        relation: raises ``DamperError`` for settings that contradict each other (a lower bound
            above an upper one); called with all of them as keywords when they enter a run.
    """

    function: Callable[..., Tensor]
    noise: Mapping[str, Noise] = field(default_factory=dict)
    previous_obs: bool = False
    prediction: bool = False
    reads_outputs_only: bool = False
    relation: Callable[..., None] | None = None

    def __call__(self, *inputs: Any, **settings: Any) -> Tensor:
        """Call the function."""
        return self.function(*inputs, **settings)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The function's keyword-only parameters and defaults (``Parameter.empty`` for none)."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise for values that annotations rule out; numbers must be finite and not negative."""
        hints = resolved_hints(self.function, settings)
        values = dict(settings)
        for name, value in settings.items():
            if isinstance(value, Tensor):
                # They are checked once, when they enter a run: the device may be waited for.
                value = values[name] = value.cpu()
            hint = hints.get(name)
            if hint == Setting:
                check_range(name, value, 0.0)
            elif get_origin(hint) is Literal:
                check_choice(name, value, get_args(hint))
            elif hint is bool:
                check_flag(name, value)
        if self.relation:
            self.relation(**values)
