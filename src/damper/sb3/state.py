"""What a method remembers between updates, as one module that SB3 saves and loads with the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from stable_baselines3.common.utils import polyak_update
from torch import Tensor, nn

from damper.errors import DamperError
from damper.methods import Method
from damper.rules import combine_reported, has_memory

AVERAGE_RATE = 0.01  # ASAP's Polyak copy of the actor, moved at every gradient step


class MethodState(nn.Module):
    """A second head with the actor's Polyak average (ASAP), and the memory of a rule that has one (Bloop)."""

    def __init__(
        self,
        method: Method,
        policy: Any,
        parameters: Sequence[nn.Parameter],
        rule_settings: dict[str, Any],
        generator: torch.Generator,
    ) -> None:
        """For a method on these parameters of an SB3 policy; empty where the method remembers nothing."""
        super().__init__()
        self._form: type | None = None
        if method.prediction:
            self._add_head(policy, generator)
        if method.rule is not None and has_memory(method.rule):
            count = sum(p.numel() for p in (*parameters, *self._head_parameters()))
            zeros = torch.zeros(count, device=policy.device)
            self.remember(combine_reported(method.rule, zeros, zeros, None, **rule_settings)[1].state)

    def _add_head(self, policy: Any, generator: torch.Generator) -> None:
        actor, device = policy.actor, policy.device
        mu = getattr(actor, "mu", None)
        layers = [m for m in mu.modules() if isinstance(m, nn.Linear)] if isinstance(mu, nn.Module) else []
        if not layers or not (hasattr(actor, "latent_pi") or isinstance(mu, nn.Sequential)):
            raise DamperError(
                "method 'asap' needs an actor whose last hidden layer can be found, as in SB3's own networks (mu, "
                f"latent_pi), but {type(actor).__name__} has another layout: choose a method without a second head."
            )
        # Made aside, so that everything else starts from the weights that SB3 would draw.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            self.average = policy.make_actor()
            self.head, self.average_head = (
                nn.Linear(layers[-1].in_features, layers[-1].out_features, device=device) for _ in range(2)
            )
        for parameter in self.head.parameters():
            bound = self.head.in_features**-0.5
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self.average.load_state_dict(actor.state_dict())
        self.average_head.load_state_dict(self.head.state_dict())
        for copy in (self.average, self.average_head):
            copy.train(False).requires_grad_(False)

    def trained(self, actor: nn.Module) -> list[nn.Parameter]:
        """What the actor's update changes: the actor's parameters, and the head's."""
        return [p for p in (*actor.parameters(), *self._head_parameters()) if p.requires_grad]

    def _head_parameters(self) -> Iterable[nn.Parameter]:
        return self.head.parameters() if hasattr(self, "head") else ()

    def follow(self, actor: nn.Module) -> None:
        """Move the average towards the actor."""
        if hasattr(self, "head"):
            polyak_update(actor.parameters(), self.average.parameters(), AVERAGE_RATE)
            polyak_update(self.head.parameters(), self.average_head.parameters(), AVERAGE_RATE)

    @property
    def memory(self) -> Any:
        """The rule's memory in the rule's own form; None without."""
        if self._form is None:
            return None
        tensors = [buffer for _, buffer in self.named_buffers(recurse=False)]
        return tensors[0] if self._form is Tensor else self._form(*tensors)

    def remember(self, memory: Any) -> None:
        """Keep the rule's memory: a tensor, or a named tuple of tensors."""
        if memory is None:
            return
        self._form = Tensor if isinstance(memory, Tensor) else type(memory)
        for i, tensor in enumerate([memory] if self._form is Tensor else memory):
            self.register_buffer(f"memory_{i}", tensor)
