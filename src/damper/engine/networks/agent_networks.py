"""The networks of P agents: shapes, flat parameters, and actors and critics bound to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from damper.agents import BACKBONES
from damper.engine.data.random_streams import Streams
from damper.engine.networks.layout import Layout, Weights, trunk_layers
from damper.engine.networks.stacked import StackedActor, StackedCritic
from damper.methods import Method

ALIGNMENT = 32  # numbers; 128 bytes in float32, a GPU's cache line


@dataclass(frozen=True)
class NetworkSizes:
    """The sizes that determine the networks' shapes; a population shares them."""

    obs_dim: int
    act_dim: int
    net_arch: tuple[int, ...] = (256, 256)
    activation: str = "silu"

    @property
    def noise_shapes(self) -> dict[str | None, tuple[int, ...]]:
        """The axes of a draw after the batch's, by ``damper.interface.Noise.like``."""
        return {"obs": (self.obs_dim,), "action": (self.act_dim,), None: ()}


class AgentNetworks:
    """Actors and twin critics, with target and averaged copies, of one agent per seed.

    ``parameters`` holds all agents' flat parameters by name: ``actor`` and the copies that the
    backbone or the method needs (``actor_target``, ``actor_average``), ``[P, n]``; ``critic`` and
    ``critic_target``, ``[P, 2n]``. They are changed in place.
    """

    def __init__(
        self,
        backbone: str,
        method: Method,
        sizes: NetworkSizes,
        streams: Streams,
        dtype: torch.dtype,
    ) -> None:
        self.backbone, self.method = backbone, method
        self.sizes, self.n_agents = sizes, len(streams.seeds)
        self.device, self.dtype = streams.device, dtype
        self.actor_layout, self.critic_layout = layouts(backbone, method, sizes)
        actor = self.actor_layout.init_params(streams, "actor", dtype)
        # Twins differ only in their draws; critic 0 is the one that TD3's actor climbs.
        twins = [self.critic_layout.init_params(streams, f"critic.{j}", dtype) for j in (0, 1)]
        critic = torch.stack(twins, 1).flatten(1)
        self.parameters = {"actor": actor, "critic": critic, "critic_target": critic.clone()}
        if BACKBONES[backbone].HAS_ACTOR_TARGET:
            self.parameters["actor_target"] = actor.clone()
        if method.prediction:
            self.parameters["actor_average"] = actor.clone()
        # The actor in the critics' target: its target copy if the backbone has one.
        self.target_policy = "actor_target" if "actor_target" in self.parameters else "actor"

    def actor(self, weights: str | Weights = "actor") -> StackedActor:
        """The actors with these weights, or those of this name, with their average if any."""
        if isinstance(weights, str):
            weights = self.actor_layout.unflatten(self.parameters[weights])
        flat_average, activation = self.parameters.get("actor_average"), self.sizes.activation
        if flat_average is None:
            return StackedActor(weights, activation)
        average = StackedActor(self.actor_layout.unflatten(flat_average), activation)
        return StackedActor(weights, activation, average)

    def critic(self, weights: str | Weights = "critic") -> StackedCritic:
        """The critics with these weights, or those of this name."""
        if isinstance(weights, str):
            weights = self.critic_layout.unflatten(self.twins(weights))
        return StackedCritic(weights, self.sizes.activation)

    def twins(self, name: str) -> Tensor:
        """The named critics' parameters, ``[2P, n]``: rows 2j and 2j+1 belong to agent j."""
        return self.parameters[name].view(2 * self.n_agents, -1)


def layouts(backbone: str, method: Method, sizes: NetworkSizes) -> tuple[Layout, Layout]:
    """The layouts of the actor and of one critic."""
    heads = BACKBONES[backbone].HEADS + (("prediction",) if method.prediction else ())
    last = sizes.net_arch[-1]
    actor = trunk_layers(sizes.obs_dim, sizes.net_arch)
    actor += tuple((head, last, sizes.act_dim) for head in heads)
    critic = (*trunk_layers(sizes.obs_dim + sizes.act_dim, sizes.net_arch), ("q", last, 1))
    actor_layout, critic_layout = Layout(actor, ALIGNMENT), Layout(critic, ALIGNMENT)
    # Cached now, because torch.compile cannot trace the first use of a cached property.
    _ = actor_layout.layer_slices, critic_layout.layer_slices
    return actor_layout, critic_layout
