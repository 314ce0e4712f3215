"""One update of a population: the critics' step, then the actors', then the temperature's.

This is the code that trains; the tests of parity, isolation and NaN run it too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from damper.engine.gradients.backend import CriticGradient
from damper.engine.gradients.objectives import Logs, add_logs
from damper.engine.update.population import Population
from damper.interface import Batch, NoiseDraws

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
Update = Callable[[Batch, NoiseDraws], None]  # one gradient step of every agent, in place


def make_update(
    population: Population,
    with_actor: bool,
    compiler: Compiler = lambda function: function,
    add_context: Callable[[Batch], Batch] = lambda batch: batch,
) -> Update:
    """Make the update: a gradient step of every agent on a batch ``[P, B, ·]`` with the noise of its losses.

    Critics, actors and temperature are compiled as separate functions. In one function, Inductor
    would write the critics' new parameters twice (into a buffer for the actors, then in place), and
    would recompute the actors' log probabilities inside the temperature's sum.

    Args:
        population: the population whose parameters change.
        with_actor: whether actors and target networks move too: with SAC at every update, with TD3
            at every ``policy_delay``-th.
        compiler: ``torch.compile`` or similar, applied to each part; the default runs eagerly.
        add_context: adds to a batch what is not sampled (progress, action scale), inside the
            compiled functions.
    """

    def critic_step(batch: Batch, noise: NoiseDraws) -> Sequence[Tensor]:
        result = population.critic_gradient(add_context(batch), noise)
        population.step_critic(result.gradient, result.logs, with_actor)
        return result.saved_activations

    def actor_step(
        batch: Batch, noise: NoiseDraws, saved_activations: Sequence[Tensor]
    ) -> Tensor | None:
        return population.step_actor(add_context(batch), noise, saved_activations)

    two_streams = population.gradient_backend.traceable and population.method.separate_critic_pass
    update_critic = (
        _critic_on_two_streams(population, with_actor, compiler, add_context)
        if two_streams
        else compiler(critic_step)
    )
    update_actor, update_temperature = compiler(actor_step), compiler(population.update_temperature)

    def update(batch: Batch, noise: NoiseDraws) -> None:
        saved_activations = update_critic(batch, noise)
        if with_actor and (log_prob := update_actor(batch, noise, saved_activations)) is not None:
            update_temperature(log_prob)

    return update


def _critic_on_two_streams(
    population: Population,
    with_actor: bool,
    compiler: Compiler,
    add_context: Callable[[Batch], Batch],
) -> Callable[[Batch, NoiseDraws], Sequence[Tensor]]:
    """Compute the smoothness loss's gradient on a side stream, concurrently with that of the critics' own loss."""

    def smoothness_gradient(batch: Batch, noise: NoiseDraws) -> CriticGradient:
        return population.critic_smoothness_gradient(add_context(batch), noise)

    def td_gradient(batch: Batch, noise: NoiseDraws) -> CriticGradient:
        return population.critic_gradient(add_context(batch), noise, without_smoothness=True)

    def step(first: tuple[Tensor, Logs], second: tuple[Tensor, Logs]) -> None:
        population.step_critic(first[0] + second[0], add_logs(first[1], second[1]), with_actor)

    side = torch.cuda.Stream(population.device) if population.device.type == "cuda" else None
    find_smoothness, find_td, take_step = (
        compiler(part) for part in (smoothness_gradient, td_gradient, step)
    )

    def critic_step(batch: Batch, noise: NoiseDraws) -> Sequence[Tensor]:
        if side is not None:
            side.wait_stream(torch.cuda.current_stream(side.device))
        with nullcontext() if side is None else torch.cuda.stream(side):
            smoothness: CriticGradient = find_smoothness(batch, noise)
        td: CriticGradient = find_td(batch, noise)
        if side is not None:
            torch.cuda.current_stream(side.device).wait_stream(side)
        take_step(
            td[:2], smoothness[:2]
        )  # without the saved activations, which would be additional inputs
        return td.saved_activations

    return critic_step
