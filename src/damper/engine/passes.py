"""The gradients of one update: by autograd, or written out layer by layer for the compiler.

Both give the same numbers. Autograd is the reference and takes any loss; the other shares forward passes between
losses, sends them all back at once, and is a few kernels per layer on a GPU.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from damper.engine import dense
from damper.engine.differentiate import differentiate
from damper.engine.field import field_inputs, of_twins
from damper.engine.field_tape import FieldTape
from damper.engine.objectives import Objectives, Seen
from damper.engine.readings import Answering, Asking, Linear, ReadCritic, ReadField, ReadPolicy, Source, slopes
from damper.engine.tape import Tape
from damper.errors import DamperError

if TYPE_CHECKING:
    from damper.engine.population import Population

ActorLoss = Callable[..., Seen]  # of a policy and a critic
Gradients = tuple[list[Tensor], dict[str, Tensor]]  # rows [P, n], one or two, and what was seen


class Passes(Protocol):
    """Gradients of an update's losses: the critics', and after their step the actors'."""

    kept: Sequence[Tensor]

    def critic(self, apart: bool = False) -> Gradients:
        """By the critics' parameters ``[P, 2n]``; ``kept`` then holds what ``actor`` may reuse.

        ``apart`` leaves out what ``critic_term`` gives.
        """

    def critic_term(self) -> tuple[Tensor, Tensor]:
        """Gradient ``[P, 2n]`` and value of a loss on the critics that shares no pass with theirs."""

    def actor(self, kept: Sequence[Tensor]) -> Gradients:
        """By the actors' parameters ``[P, n]``: native and auxiliary for a rule, otherwise their sum."""


class Autograd:
    """PyTorch differentiates."""

    def __init__(self, population: Population, goal: Objectives) -> None:
        """Nothing is computed yet."""
        self.population, self.goal = population, goal
        self.kept: Sequence[Tensor] = ()

    def critic(self, apart: bool = False) -> Gradients:
        """See ``Passes``."""
        agents, goal = self.population, self.goal
        with torch.no_grad():
            y = goal.target(agents.actor(agents.behind), agents.critic("critic_target"))

        def loss(critic: Any) -> Seen:
            value = goal.critic_loss(critic, y)
            if goal.method.critic and not (apart and goal.method.critic_apart):
                value = value + goal.critic_term(critic, agents.actor())
            return value, {"critic_loss": value}

        (gradient,), seen = differentiate([loss], agents.bound_critic, agents.critic_layout, agents.twins("critic"))
        return [gradient.view(agents.agents, -1)], seen

    def critic_term(self) -> tuple[Tensor, Tensor]:
        """See ``Passes``."""
        agents, goal = self.population, self.goal

        def loss(critic: Any) -> Seen:
            value = goal.critic_term(critic, agents.actor())
            return value, {"term": value}

        (gradient,), seen = differentiate([loss], agents.bound_critic, agents.critic_layout, agents.twins("critic"))
        return gradient.view(agents.agents, -1), seen["term"]

    def actor(self, kept: Sequence[Tensor] = ()) -> Gradients:
        """See ``Passes``."""
        agents, goal = self.population, self.goal
        critic = agents.critic()
        losses: list[Callable[[Any], Seen]] = [lambda policy: goal.native(policy, critic)]
        if goal.method.actor is not None:
            losses = [*losses, goal.auxiliary] if goal.method.rule else [lambda policy: goal.both(policy, critic)]
        return differentiate(losses, agents.bound_actor, agents.actor_layout, agents.state["actor"])


class Recorded:
    """Each network is read once, at all inputs that the losses ask for.

    A loss that needs more than values goes through ``torch.func``, and its gradient is added.
    """

    def __init__(self, population: Population, goal: Objectives) -> None:
        """Nothing is computed yet."""
        self.population, self.goal = population, goal
        self.heads = tuple(name for name, _, _ in population.actor_layout.layers if not name.startswith("trunk."))
        self.averages: list[Tensor] = []
        self.kept: Sequence[Tensor] = ()

    # --- critics ------------------------------------------------------------------------------------------------

    def critic(self, apart: bool = False) -> Gradients:
        """See ``Passes``."""
        agents, goal, y, method = self.population, self.goal, self._target(), self.goal.method

        def loss(source: Source) -> Seen:
            critic = ReadCritic(source)
            value = goal.critic_loss(critic, y)
            if method.critic is not None and not method.critic_apart:
                value = value + goal.critic_term(critic, agents.actor())
            return value, {"critic_loss": value}

        inputs: list[tuple[Any, ...]] = []
        loss(Asking(inputs, _two_values))
        tape = self._critic_tape("critic", inputs)
        values = tape.output.view(agents.agents, 2, -1).split([obs.shape[1] for obs, _ in inputs], -1)
        found, seen = slopes(lambda given: loss(Answering(given)), values)
        gradient = tape.gradients([torch.cat(found, -1).view(tape.output.shape)], _span(values, -1))[0]
        gradient = gradient.view(agents.agents, -1)
        if method.critic_apart and not apart:
            other, value = self.critic_term()
            gradient, seen = gradient + other, {"critic_loss": seen["critic_loss"] + value}
        return [gradient], seen

    def critic_term(self) -> tuple[Tensor, Tensor]:
        """See ``Passes``."""
        agents, goal = self.population, self.goal
        assert goal.method.critic is not None
        if not goal.method.critic.by_field:
            return Autograd(agents, goal).critic_term()
        tapes: list[FieldTape] = []

        def run(observations: Sequence[Tensor], action: Tensor, v: Tensor) -> tuple[list[Tensor], Tensor]:
            x = field_inputs(observations, action)
            tapes.append(FieldTape(agents.critic_layout, agents.twins("critic"), agents.shape.activation, x, v))
            return of_twins(tapes[-1].gradient, tapes[-1].curvature, len(observations))

        def answered(given: Sequence[Tensor]) -> Seen:
            fields = iter(zip(given[::2], given[1::2], strict=True))
            critic = ReadField(lambda observations, action, v: of_twins(*next(fields), len(observations)))
            value = goal.critic_term(critic, agents.actor())
            return value, {"term": value}

        goal.critic_term(ReadField(run), agents.actor())
        if not tapes:
            raise DamperError(
                f"by_field must be left out of method {goal.method.name!r}, whose critic's loss reads no field."
            )
        found, seen = slopes(answered, [part for tape in tapes for part in (tape.gradient, tape.curvature)])
        parts = [tape.gradients(*found[2 * i : 2 * i + 2]) for i, tape in enumerate(tapes)]
        return functools.reduce(torch.add, parts).view(agents.agents, -1), seen["term"]

    def _target(self) -> Tensor:
        def values(obs: Tensor, action: Tensor) -> Tensor:
            output = self._critic_tape("critic_target", [(obs, action)], keep=False).output
            return output.view(self.population.agents, 2, -1)

        name = self.population.behind
        read = self._reader(name)
        if name == "actor":
            self._read_actor()
            self.kept = self.tape.kept
            read = Answering(self._answers(self.target_order))
        return self.goal.target(self._policy(read), ReadCritic(values))

    def _critic_tape(
        self, name: str, inputs: Sequence[tuple[Any, ...]], first: bool = False, keep: bool = True
    ) -> Tape:
        agents = self.population
        x = torch.cat([torch.cat(pair, -1) for pair in inputs], 1)
        return Tape(agents.critic_layout, agents.twins(name), agents.shape.activation, x, keep, 2 if first else 1)

    # --- actors -------------------------------------------------------------------------------------------------

    def actor(self, kept: Sequence[Tensor] = ()) -> Gradients:
        """See ``Passes``."""
        agents, method = self.population, self.goal.method
        self._read_actor(kept)
        both, first = Linear(self._read_both), Linear(self._read_first)
        # Only the first loss asks the critics, and what it asks depends on what the actor answers.
        asks_critics, order = self.losses[0]
        asks_critics(self._policy(Answering(self._answers(order))), ReadCritic(both, first))
        cotangents: list[Tensor] = []
        seen: dict[str, Tensor] = {}
        for loss, order in self.losses:

            def answered(given: Sequence[Tensor], loss: ActorLoss = loss) -> Seen:
                return loss(self._policy(Answering(given)), ReadCritic(both.again(), first.again()))

            found, more = slopes(answered, self._answers(order))
            cotangents.append(self._by_rows(found, order))
            seen |= more
        gradients = self.tape.gradients(cotangents, _span(self.outputs))
        if method.actor is not None and not method.actor.by_value:
            rows = agents.state["actor"]
            (other,), more = differentiate([self.goal.auxiliary], agents.bound_actor, agents.actor_layout, rows)
            gradients = [*gradients, other] if method.rule else [gradients[0] + other]
            seen |= more
        return gradients, seen

    def _read_actor(self, kept: Sequence[Tensor] = ()) -> None:
        """Ask every loss, run the actor on all their observations at once (if not kept), and note each one's share."""
        goal = self.goal
        inputs: list[tuple[Any, ...]] = []
        blank = ReadCritic(lambda obs, action: obs.new_zeros(_two_values(obs, action)))
        self.losses: list[tuple[ActorLoss, list[int]]] = []
        for loss in self._actor_losses():
            self.losses.append((loss, self._ask(inputs, functools.partial(loss, critic=blank))))
        if self.population.behind == "actor":
            self.target_order = self._ask(inputs, lambda policy: goal.target(policy, blank))
        agents = self.population
        layout, rows = agents.actor_layout, agents.state["actor"]
        if kept:
            self.tape = Tape.again(layout, rows, kept)
        else:
            self.tape = Tape(layout, rows, agents.shape.activation, dense.together([obs for (obs,) in inputs]))
        self.outputs = self.tape.output.split([obs.shape[1] for (obs,) in inputs], 1)

    def _actor_losses(self) -> list[ActorLoss]:
        goal, term = self.goal, self.goal.method.actor
        if term is None or not term.by_value:
            return [goal.native]
        return [goal.native, lambda policy, critic: goal.auxiliary(policy)] if goal.method.rule else [goal.both]

    def _ask(self, inputs: list[tuple[Any, ...]], loss: Callable[[Any], Any]) -> list[int]:
        """Which observations a loss asks for; what the actor's average says of them is computed on the way."""
        outputs = self.population.actor_layout.dense[-1].outputs
        asking = Asking(inputs, lambda obs: (*obs.shape[:-1], outputs))

        def average(obs: Tensor) -> Tensor:
            self.averages.append(self._reader("actor_average")(obs))
            return self.averages[-1]

        loss(ReadPolicy(self.heads, asking, average))
        return asking.order

    def _policy(self, read: Source) -> ReadPolicy:
        averages = iter(self.averages)
        return ReadPolicy(self.heads, read, lambda obs: next(averages))

    def _reader(self, name: str) -> Source:
        agents = self.population
        return lambda obs: Tape(agents.actor_layout, agents.state[name], agents.shape.activation, obs, False).output

    def _answers(self, order: Sequence[int]) -> list[Tensor]:
        return [self.outputs[i] for i in order]

    def _by_rows(self, found: Sequence[Tensor], order: Sequence[int]) -> Tensor:
        """Slopes by what a loss asked for as ``[P, rows, outputs]``, up to the last row it asked for."""
        known = dict(zip(order, found, strict=True))
        return dense.together([known.get(i, torch.zeros_like(self.outputs[i])) for i in range(max(order) + 1)])

    def _read_both(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        tape = self._critic_tape("critic", [(obs, action)])
        shape = (self.population.agents, 2, obs.shape[1], -1)
        return tape.output.view(shape).squeeze(-1), tape.input_slopes().view(shape)[..., obs.shape[-1] :]

    def _read_first(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        tape = self._critic_tape("critic", [(obs, action)], first=True)
        return tape.output.squeeze(-1), tape.input_slopes()[..., obs.shape[-1] :]


def _span(parts: Sequence[Tensor], axis: int = 1) -> int:
    return math.gcd(*(part.shape[axis] for part in parts))


def _two_values(obs: Tensor, action: Tensor) -> tuple[int, ...]:
    return (len(obs), 2, obs.shape[1])
