"""The losses of one update, the backbone's and the method's, as functions of the networks alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from damper.errors import DamperError
from damper.interface import Batch, Critic, Loss, NoiseDraws, Policy
from damper.methods import Method

Logs = dict[str, Tensor]  # values to log, [P] by name
LossAndLogs = tuple[Tensor, Logs]  # a loss, one value per agent [P], and its logs


@dataclass(frozen=True)
class Objectives:
    """The losses with batch, noise and settings bound."""

    backbone: Any
    method: Method
    method_kwargs: Mapping[str, dict[str, Any]]
    batch: Batch
    noise: NoiseDraws
    hparams: Mapping[str, Tensor]

    def target(self, policy: Policy, critic: Critic) -> Tensor:
        """The critics' target y."""
        return self.backbone.target(policy, critic, self.batch, self.noise, self.hparams)

    def td_loss(self, critic: Critic, y: Tensor) -> LossAndLogs:
        """The backbone's critic loss, on the TD error."""
        value: Tensor = self.backbone.critic_loss(critic, self.batch, y)
        return value, {"critic_loss": value}

    def critic_smoothness_loss(self, critic: Critic, policy: Policy) -> LossAndLogs:
        """The method's critic loss."""
        value = self._smoothness("critic", self.method.critic, critic, policy)
        return value, {
            "critic_loss": value
        }  # the backbone's name too, so that the log has the sum of both losses

    def primary_loss(self, policy: Policy, critic: Critic) -> LossAndLogs:
        """The backbone's actor loss."""
        value, logs = self.backbone.actor_loss(policy, critic, self.batch, self.noise, self.hparams)
        return value, {**logs, "actor_loss": value}

    def auxiliary_loss(self, policy: Policy) -> LossAndLogs:
        """The method's actor loss."""
        value = self._smoothness("actor", self.method.actor, policy)
        return value, {"auxiliary_loss": value}

    def _smoothness(self, part: str, loss: Loss | None, *networks: Policy | Critic) -> Tensor:
        """A loss of the method, one value per agent; the shape is checked, since users can write their own losses."""
        assert loss is not None
        value = loss(*networks, self.batch, self.noise, **self.method_kwargs[part])
        agents = self.batch.reward.shape[:-1]
        if not isinstance(value, Tensor) or value.shape != agents:
            given = (
                f"shape {tuple(value.shape)}"
                if isinstance(value, Tensor)
                else f"a {type(value).__name__}"
            )
            raise DamperError(
                f"the {part}'s loss of method {self.method.name!r} must return one value per "
                "agent, shape "
                f"{tuple(agents)}, but returned {given}: end it in mean((-2, -1)) of [P, B, A], or "
                "mean(-1) of [P, B]."
            )
        return value

    def primary_plus_auxiliary(self, policy: Policy, critic: Critic) -> LossAndLogs:
        """``primary_loss`` plus ``auxiliary_loss``, for methods without a rule."""
        return add_losses(self.primary_loss(policy, critic), self.auxiliary_loss(policy))


class CheckedNoise(dict[str, Tensor]):
    """Noise for a loss that is not traced; a name that the loss did not declare gets a clear error."""

    def __missing__(self, name: str) -> Tensor:
        raise DamperError(
            f"a loss must read only noise that it declares, but {name!r} is not among "
            f"{', '.join(self) or 'none'}: "
            f"declare it in Loss(function, noise={{{name!r}: Noise('normal', like='action')}})."
        )


def add_losses(first: LossAndLogs, second: LossAndLogs) -> LossAndLogs:
    """Add two losses of one network; logs of the same name are added too."""
    return first[0] + second[0], add_logs(first[1], second[1])


def add_logs(first: Logs, second: Logs) -> Logs:
    """Merge two logs; values of the same name are added."""
    return {
        **first,
        **{name: first[name] + value if name in first else value for name, value in second.items()},
    }
