"""A method's state between updates, as one module that SB3 saves and loads with the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from stable_baselines3.common.utils import polyak_update
from torch import nn

from damper.errors import DamperError
from damper.interface import AVERAGE_RATE
from damper.methods import Method
from damper.rules import initial_state, rebuild_state, state_tensors

Parameters = Mapping[str, Any]


class MethodState(nn.Module):
    """A second head with the actor's Polyak average (ASAP), and a rule's state (Bloop).

    Its ``state_dict`` goes into SB3's zips as ``method_state``; it is empty for a method without
    state.
    """

    def __init__(
        self,
        method: Method,
        policy: Any,
        parameters: Sequence[nn.Parameter],
        rule_settings: dict[str, Any],
        generator: torch.Generator,
    ) -> None:
        """``parameters`` are those of the SB3 policy whose gradients the method's rule combines."""
        super().__init__()
        if method.prediction:
            self._add_head(policy, generator)
        self._rule_state_type: type = type(None)
        if method.rule is not None:
            count = sum(p.numel() for p in (*parameters, *self._head_parameters()))
            blank = torch.empty(count, device=policy.device)
            self.set_rule_state(initial_state(method.rule, blank, **rule_settings))

    def _add_head(self, policy: Any, generator: torch.Generator) -> None:
        actor, device = policy.actor, policy.device
        mu = getattr(actor, "mu", None)
        parts = mu.modules() if isinstance(mu, nn.Module) else ()
        layers = [part for part in parts if isinstance(part, nn.Linear)]
        if not layers or not (hasattr(actor, "latent_pi") or isinstance(mu, nn.Sequential)):
            raise DamperError(
                "method 'asap' needs an actor whose last hidden layer can be found, as in SB3's "
                f"own networks (mu, latent_pi), but {type(actor).__name__} has another layout: "
                "choose a method without a second head."
            )
        size = layers[-1].in_features, layers[-1].out_features
        # With forked random numbers, so that all else starts from the weights that SB3 would draw.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            self.average = policy.make_actor()
            self.head = nn.Linear(*size, device=device)
            self.average_head = nn.Linear(*size, device=device)
        for parameter in self.head.parameters():
            bound = self.head.in_features**-0.5
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self.average.load_state_dict(actor.state_dict())
        self.average_head.load_state_dict(self.head.state_dict())
        for copy in (self.average, self.average_head):
            copy.train(False).requires_grad_(False)

    def actor_parameters(self, actor: nn.Module) -> list[nn.Parameter]:
        """The parameters of the actor's optimizer: the actor's, and the second head's."""
        return [*actor.parameters(), *self._head_parameters()]

    def _head_parameters(self) -> Iterable[nn.Parameter]:
        return self.head.parameters() if hasattr(self, "head") else ()

    def update_average(self, actor: nn.Module, rate: float = AVERAGE_RATE) -> None:
        """Move the Polyak average towards the actor (rate 1 copies it), if there is one."""
        if hasattr(self, "head"):
            polyak_update(actor.parameters(), self.average.parameters(), rate)
            polyak_update(self.head.parameters(), self.average_head.parameters(), rate)

    @property
    def rule_state(self) -> Any:
        """The rule's state as the rule gave it: a tensor, a named tuple of tensors, or None."""
        buffers = [buffer for _, buffer in self.named_buffers(recurse=False)]
        return rebuild_state(self._rule_state_type, buffers)

    def set_rule_state(self, state: Any) -> None:
        """Keep the rule's state as buffers ``memory_0``, ...; None changes nothing."""
        self._rule_state_type = self._rule_state_type if state is None else type(state)
        for i, tensor in enumerate(state_tensors(state)):
            self.register_buffer(f"memory_{i}", tensor)


def is_same_state(saved: Parameters, current: Parameters) -> bool:
    """Whether two models' method states have the same names and shapes."""
    shapes = [
        {name: tensor.shape for name, tensor in parameters.get("method_state", {}).items()}
        for parameters in (saved, current)
    ]
    return shapes[0] == shapes[1]


def exchange_state(saved: Parameters, current: Parameters) -> Parameters:
    """Saved parameters with the method state and second head's optimizer group of ``current``."""
    exchanged = {name: state for name, state in saved.items() if name != "method_state"}
    if "method_state" in current:
        exchanged["method_state"] = current["method_state"]
    if "actor.optimizer" in saved:
        policy, head = _split_groups(saved)[0], _split_groups(current)[1]
        kept = {index for group in policy for index in group["params"]}
        moments = saved["actor.optimizer"]["state"]
        exchanged["actor.optimizer"] = {
            "state": {index: value for index, value in moments.items() if index in kept},
            "param_groups": [*policy, *head],
        }
    return exchanged


def _split_groups(parameters: Parameters) -> tuple[list[Any], list[Any]]:
    """The actor's parameter groups, and that of the second head, if there is one."""
    groups = parameters["actor.optimizer"]["param_groups"]
    count = len(groups) - ("head.weight" in parameters.get("method_state", {}))
    return groups[:count], groups[count:]
