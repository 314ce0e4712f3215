"""One update of a population: the critics' step, then the actors', then the temperature's.

This is the composition that trains; tests of parity, isolation and NaN run it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from damper.engine.device.side_stream import SideStream
from damper.engine.gradients.backend import CriticGradient
from damper.engine.gradients.objectives import Logs, add_logs
from damper.engine.update.population import Population
from damper.interface import Batch, NoiseDraws

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


class Update:
    """A gradient step of every agent: ``update(batch, noise)``, all in place.

    Critics, actors and temperature are compiled as separate functions. In one function, Inductor would write the
    critics' new parameters twice (into a buffer for the actors, then in place), and would recompute the actors' log
    probabilities inside the temperature's sum.
    """

    def __init__(
        self,
        population: Population,
        with_actor: bool,
        compiler: Compiler = lambda function: function,
        add_context: Callable[[Batch], Batch] = lambda batch: batch,
    ) -> None:
        """Compile the parts.

        Args:
            population: whose parameters change.
            with_actor: whether actors and target networks move too: with SAC at every update, with TD3 at every
                ``policy_delay``-th.
            compiler: ``torch.compile`` or the like, applied to each part; the default runs eagerly.
            add_context: adds to a batch what is not sampled (progress, action scale), inside the compiled functions.
        """
        self.population, self.with_actor = population, with_actor
        self._compiler, self._add_context = compiler, add_context
        separate = population.gradient_backend.separate_smoothness_pass and population.method.separate_critic_pass
        self._critic = self._critic_on_two_streams() if separate else self._critic_in_one()
        self._actor = self._actor_part()
        self._temperature = compiler(population.update_temperature)

    def __call__(self, batch: Batch, noise: NoiseDraws) -> None:
        """Update on a batch ``[P, B, ·]`` with the noise that the losses asked for."""
        saved_activations = self._critic(batch, noise)
        if self.with_actor and (log_prob := self._actor(batch, noise, saved_activations)) is not None:
            self._temperature(log_prob)

    def _critic_in_one(self) -> Callable[[Batch, NoiseDraws], Sequence[Tensor]]:
        population, with_actor, add_context = self.population, self.with_actor, self._add_context

        def critic(batch: Batch, noise: NoiseDraws) -> Sequence[Tensor]:
            result = population.critic_gradient(add_context(batch), noise)
            population.step_critic(result.gradient, result.logs, with_actor)
            return result.saved_activations

        return self._compiler(critic)

    def _critic_on_two_streams(self) -> Callable[[Batch, NoiseDraws], Sequence[Tensor]]:
        """The smoothness loss's gradient is computed on a side stream, beside that of the critics' own loss."""
        population, with_actor, add_context = self.population, self.with_actor, self._add_context

        def smoothness(batch: Batch, noise: NoiseDraws) -> CriticGradient:
            return population.critic_smoothness(add_context(batch), noise)

        def rest(batch: Batch, noise: NoiseDraws) -> CriticGradient:
            return population.critic_gradient(add_context(batch), noise, without_smoothness=True)

        def step(rest: tuple[Tensor, Logs], smoothness: tuple[Tensor, Logs]) -> None:
            (gradient, logs), (other, more) = rest, smoothness
            population.step_critic(gradient + other, add_logs(logs, more), with_actor)

        side = SideStream(population.device)
        find_smoothness, find_rest, take_step = (self._compiler(part) for part in (smoothness, rest, step))

        def critic(batch: Batch, noise: NoiseDraws) -> Sequence[Tensor]:
            with side.begin():
                other: CriticGradient = find_smoothness(batch, noise)
            result: CriticGradient = find_rest(batch, noise)
            side.join()
            take_step(result[:2], other[:2])  # without activations, each of which would be one more input
            return result.saved_activations

        return critic

    def _actor_part(self) -> Callable[..., Tensor | None]:
        population, add_context = self.population, self._add_context

        def actor(batch: Batch, noise: NoiseDraws, saved_activations: Sequence[Tensor]) -> Tensor | None:
            return population.update_actor(add_context(batch), noise, saved_activations)

        return self._compiler(actor)
