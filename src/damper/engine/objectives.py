"""What one update descends: the backbone's and the method's losses as functions of networks alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from damper.losses._interface import Batch, Critic, NoiseDraws, Policy
from damper.methods import Method

Seen = tuple[Tensor, dict[str, Tensor]]  # a loss, one value per agent, and what its making showed


@dataclass(frozen=True)
class Objectives:
    """Losses with batch, noise and settings bound."""

    backbone: Any
    method: Method
    settings: Mapping[str, dict[str, Any]]
    batch: Batch
    noise: NoiseDraws
    hyper: Mapping[str, Tensor]

    def target(self, policy: Policy, critic: Critic) -> Tensor:
        """The critics' target y."""
        y: Tensor = self.backbone.target(policy, critic, self.batch, self.noise, self.hyper)
        return y

    def critic_loss(self, critic: Critic, y: Tensor) -> Tensor:
        """The backbone's loss of the critics."""
        value: Tensor = self.backbone.critic_loss(critic, self.batch, y)
        return value

    def critic_term(self, critic: Critic, policy: Policy) -> Tensor:
        """The method's loss of the critics."""
        assert self.method.critic is not None
        return self.method.critic(critic, policy, self.batch, self.noise, **self.settings["critic"])

    def native(self, policy: Policy, critic: Critic) -> Seen:
        """The backbone's loss of the actor."""
        value, seen = self.backbone.actor_loss(policy, critic, self.batch, self.noise, self.hyper)
        return value, {**seen, "actor_loss": value}

    def auxiliary(self, policy: Policy) -> Seen:
        """The method's loss of the actor."""
        assert self.method.actor is not None
        value = self.method.actor(policy, self.batch, self.noise, **self.settings["actor"])
        return value, {"auxiliary_loss": value}

    def both(self, policy: Policy, critic: Critic) -> Seen:
        """Their sum, for methods without a rule."""
        (first, seen), (second, more) = self.native(policy, critic), self.auxiliary(policy)
        return first + second, {**seen, **more}
