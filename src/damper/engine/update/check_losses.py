"""Checks of losses before they are compiled: shapes, and what they claim to read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from damper.engine.data.random_streams import Streams
from damper.engine.fused import Fused
from damper.engine.gradients import Autograd, CheckedNoise, Given, Objectives
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.update.population import Population
from damper.errors import DamperError
from damper.interface import Batch

ROWS, HIDDEN, TOLERANCE = 8, (8, 8), 1e-6


def check_loss_claims(population: Population) -> None:
    """Compare gradients of shared forward passes with autograd's, for a small agent in float64.

    The claims are ``Loss.reads_outputs_only`` of the population's losses; the small agent has the
    settings of the first agent.
    """
    method, sizes = population.method, population.networks.sizes
    claims = {
        "critic": method.critic is not None and method.critic.reads_outputs_only,
        "actor": method.actor is not None and method.actor.reads_outputs_only,
    }
    if not any(claims.values()):
        return
    method_kwargs: dict[str, dict[str, Any]] = {}
    for part, settings in population.gradients.method_kwargs.items():
        method_kwargs[part] = {name: _first(value) for name, value in settings.items()}
    hparams = {name: _first(value) for name, value in population.hparams.items()}
    # Small, because autograd's exact gradient costs little then, and in float64 on the CPU, where
    # rounding cannot look like a wrong claim.
    small = NetworkSizes(sizes.obs_dim, sizes.act_dim, HIDDEN, sizes.activation)
    streams = Streams([0])
    networks = AgentNetworks(population.networks.backbone, method, small, streams, torch.float64)
    ways = (Fused(networks, method_kwargs), Autograd(networks, method_kwargs))
    given = _draw_given(ways[1], hparams, streams)
    for network, claimed in claims.items():
        if not claimed:
            continue
        fused, exact = (
            [way.of_critics(given).gradient] if network == "critic" else way.of_actors(given)[0]
            for way in ways
        )
        pairs = zip(fused, exact, strict=True)
        # Written so that NaN is a difference too.
        if not all(bool((a - b).norm() <= TOLERANCE * b.norm()) for a, b in pairs):
            raise DamperError(
                f"reads_outputs_only must be left out for the {network} loss of method "
                f"{method.name!r}, which reads more than outputs at inputs made of batch and "
                "noise: with it, the gradient is wrong."
            )


def check_own_losses(population: Population, streams: Streams) -> None:
    """Call the user's own losses once, with the arguments that they will get compiled.

    Called eagerly, a mistake gets one clear sentence; inside a trace it would be one of torch's
    errors.
    """
    objectives, networks = population.gradients, population.networks
    given = _draw_given(objectives, population.hparams, streams)
    if population.method.actor is not None:
        objectives.auxiliary_loss(given, networks.actor())
    if population.method.critic is not None:
        objectives.critic_smoothness_loss(given, networks.critic(), networks.actor())


def _first(value: Any) -> Any:
    return value.reshape(-1)[:1].to("cpu", torch.float64) if isinstance(value, Tensor) else value


def _draw_given(objectives: Objectives, hparams: dict[str, Tensor], streams: Streams) -> Given:
    """A random batch, and the noise that the losses need."""
    sizes, dtype = objectives.networks.sizes, objectives.networks.dtype
    names, shape = ("obs", "move", "before"), (ROWS, sizes.obs_dim)
    obs, move, before = (streams.normal(name, 0, shape, dtype) for name in names)
    action = streams.uniform("given", 0, (ROWS, sizes.act_dim), dtype)
    reward = streams.normal("reward", 0, (ROWS,), dtype)
    terminated = torch.zeros_like(reward)
    batch = Batch(obs, action, reward, obs + 0.1 * move, terminated, obs - 0.1 * before, 0.5)
    kinds = {**objectives.backbone.UPDATE_NOISE, **objectives.method.noise}
    noise = streams.noise(kinds, 0, ROWS, sizes.noise_shapes, dtype)
    return Given(batch, CheckedNoise(noise), hparams)
