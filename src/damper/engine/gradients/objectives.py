"""The losses of one update, the backbone's and the method's, as functions of networks alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from damper.interface import Batch, Critic, NoiseDraws, Policy
from damper.methods import Method

Logs = dict[str, Tensor]  # what the log shows of a loss, [P] by name
LossAndLogs = tuple[Tensor, Logs]  # a loss, one value per agent [P], and its logs


@dataclass(frozen=True)
class Objectives:
    """Losses with batch, noise and settings bound."""

    backbone: Any
    method: Method
    method_kwargs: Mapping[str, dict[str, Any]]
    batch: Batch
    noise: NoiseDraws
    hparams: Mapping[str, Tensor]

    def target(self, policy: Policy, critic: Critic) -> Tensor:
        """The critics' target y."""
        y: Tensor = self.backbone.target(policy, critic, self.batch, self.noise, self.hparams)
        return y

    def critic(self, critic: Critic, y: Tensor) -> LossAndLogs:
        """The critics' own loss, which is the backbone's: of the TD error."""
        value: Tensor = self.backbone.critic_loss(critic, self.batch, y)
        return value, {"critic_loss": value}

    def critic_smoothness(self, critic: Critic, policy: Policy) -> LossAndLogs:
        """The method's loss of the critics."""
        assert self.method.critic is not None
        value = self.method.critic(critic, policy, self.batch, self.noise, **self.method_kwargs["critic"])
        return value, {"critic_loss": value}  # the name of the backbone's, which it is added to: the log has their sum

    def primary(self, policy: Policy, critic: Critic) -> LossAndLogs:
        """The actor's own loss, which is the backbone's."""
        value, logs = self.backbone.actor_loss(policy, critic, self.batch, self.noise, self.hparams)
        return value, {**logs, "actor_loss": value}

    def auxiliary(self, policy: Policy) -> LossAndLogs:
        """The method's loss of the actor."""
        assert self.method.actor is not None
        value = self.method.actor(policy, self.batch, self.noise, **self.method_kwargs["actor"])
        return value, {"auxiliary_loss": value}

    def primary_plus_auxiliary(self, policy: Policy, critic: Critic) -> LossAndLogs:
        """``primary`` plus ``auxiliary``, for methods without a rule."""
        return add_losses(self.primary(policy, critic), self.auxiliary(policy))


def add_losses(first: LossAndLogs, second: LossAndLogs) -> LossAndLogs:
    """Two losses of one network as one; logs of the same name are added too."""
    return first[0] + second[0], add_logs(first[1], second[1])


def add_logs(first: Logs, second: Logs) -> Logs:
    """The logs of both; values of the same name are added."""
    return {**first, **{name: first[name] + value if name in first else value for name, value in second.items()}}
