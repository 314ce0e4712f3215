"""Check losses before compiling them: they must return one value per agent, and read no more than they claim."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from damper.engine.data.random_streams import Streams
from damper.engine.gradients.autograd import AutogradBackend
from damper.engine.gradients.objectives import CheckedNoise, Objectives
from damper.engine.gradients.shared_forward import SharedForwardBackend
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.update.population import Population
from damper.errors import DamperError
from damper.interface import Batch, Loss

ROWS, HIDDEN, TOLERANCE = 8, (8, 8), 1e-6
CLAIMS = {"reads_outputs_only": "outputs", "reads_action_gradients_only": "action gradients"}


def check_loss_claims(population: Population) -> None:
    """Compare the gradients of shared forward passes with autograd's, for one small agent in float64 on the CPU.

    The claims are ``Loss.reads_outputs_only`` and ``Loss.reads_action_gradients_only`` of the
    population's losses; the small agent has the settings of the first agent.
    """
    method, sizes = population.method, population.networks.sizes
    claims = {
        network: _claim(loss)
        for network, loss in (("critic", method.critic), ("actor", method.actor))
    }
    if not any(claims.values()):
        return
    kwargs = {
        part: {name: _first(value) for name, value in own.items()}
        for part, own in population.method_kwargs.items()
    }
    small = NetworkSizes(sizes.obs_dim, sizes.act_dim, HIDDEN, sizes.activation)
    numbers = {name: _first(value) for name, value in population.hparams.items()}
    streams = Streams([0])
    networks = AgentNetworks(population.networks.backbone, method, small, streams, torch.float64)
    shared, autograd = SharedForwardBackend(networks), AutogradBackend(networks)
    agent = Population(gradient_backend=autograd, hparams=numbers, method_kwargs=kwargs)
    objectives = Objectives(
        agent.backbone, method, kwargs, *_draw_batch(agent, streams), agent.hparams
    )
    for network, claim in claims.items():
        if claim is None:
            continue
        ours, theirs = (
            [backend.critic_gradient(objectives).gradient]
            if network == "critic"
            else backend.actor_gradients(objectives)[0]
            for backend in (shared, autograd)
        )
        if any(
            not bool((a - b).norm() <= TOLERANCE * b.norm())
            for a, b in zip(ours, theirs, strict=True)
        ):
            raise DamperError(
                f"{claim} must be left out for the {network} loss of method {method.name!r}, which "
                "reads more than "
                f"{CLAIMS[claim]} at inputs made of batch and noise: with it, the gradient is "
                "wrong."
            )


def check_own_losses(population: Population, streams: Streams) -> None:
    """Call the user's own losses once on a random batch of the population, with the arguments they will get compiled.

    Called eagerly, a mistake gets one clear sentence; inside a trace it would be one of torch's
    errors.
    """
    networks, method = population.networks, population.method
    batch, noise = _draw_batch(population, streams)
    kwargs, hparams = population.method_kwargs, population.hparams
    objectives = Objectives(
        population.backbone, method, kwargs, batch, CheckedNoise(noise), hparams
    )
    if method.actor is not None:
        objectives.auxiliary_loss(networks.actor())
    if method.critic is not None:
        objectives.critic_smoothness_loss(networks.critic(), networks.actor())


def _claim(loss: Loss | None) -> str | None:
    return next((claim for claim in CLAIMS if getattr(loss, claim, False)), None)


def _first(value: Any) -> Any:
    """The first agent's value."""
    return value.reshape(-1)[:1].to("cpu", torch.float64) if isinstance(value, Tensor) else value


def _draw_batch(agent: Population, streams: Streams) -> tuple[Batch, dict[str, Tensor]]:
    """A random batch, and the noise that the losses need."""
    sizes, dtype = agent.networks.sizes, agent.dtype
    obs, move, before = (
        streams.normal(name, 0, (ROWS, sizes.obs_dim), dtype) for name in ("obs", "move", "before")
    )
    action = streams.uniform("given", 0, (ROWS, sizes.act_dim), dtype)
    reward = streams.normal("reward", 0, (ROWS,), dtype)
    batch = Batch(
        obs, action, reward, obs + 0.1 * move, torch.zeros_like(reward), obs - 0.1 * before, 0.5
    )
    return batch, agent.draw(agent.noise_kinds, streams, 0, ROWS)
