"""Adam and Polyak averaging on flat parameters ``[P, n]``, in place; inactive agents stay untouched."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass
class Adam:
    """``torch.optim.Adam`` for parameters ``[P, n]`` with a learning rate per agent.

    ``m ← β₁m + (1−β₁)g``, ``v ← β₂v + (1−β₂)g²``, ``θ ← θ − lr · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε)``.

    ``decay_m`` and ``decay_v`` are ``β₁ᵗ`` and ``β₂ᵗ`` per agent, updated by one product each step:
    Inductor would recompute a power in every block of parameters, which costs more than the rest of
    the step. PyTorch's fused kernel reads ``t`` instead. All three are always updated, so that a
    checkpoint can be resumed with either kind of step.
    """

    m: Tensor
    v: Tensor
    t: Tensor
    decay_m: Tensor
    decay_v: Tensor
    agent_by_agent: bool = False

    @classmethod
    def like(cls, parameters: Tensor, agent_by_agent: bool = False) -> Adam:
        """New moments for parameters ``[P, n]``; ``agent_by_agent`` steps each by PyTorch's fused kernel (CPU)."""
        exact: dict[str, Any] = {"dtype": torch.float64, "device": parameters.device}
        # Per agent also because PyTorch 2.13 loses in-place changes of compiled code to a single
        # float64 on a CPU.
        decay_m, decay_v = (torch.ones(len(parameters), **exact) for _ in BETAS)
        m, v = (torch.zeros_like(parameters) for _ in BETAS)
        return cls(m, v, torch.zeros((), **exact), decay_m, decay_v, agent_by_agent)

    def state(self) -> dict[str, Tensor]:
        """All tensors that a step changes besides the parameters, by name."""
        tensors = (field.name for field in fields(self) if field.name != "agent_by_agent")
        return {name: getattr(self, name) for name in tensors}

    def step(
        self, parameters: Tensor, gradient: Tensor, learning_rate: Tensor, active: Tensor
    ) -> None:
        """Update the agents for which ``active`` ``[P]`` is true; the parameters and moments of others stay."""
        self.t += 1
        self.decay_m.mul_(BETAS[0])
        self.decay_v.mul_(BETAS[1])
        if self.agent_by_agent:
            self._step_by_agent(parameters, gradient, learning_rate, active)
        else:
            self._step_at_once(parameters, gradient, learning_rate, active)

    def _step_at_once(
        self, parameters: Tensor, gradient: Tensor, learning_rate: Tensor, active: Tensor
    ) -> None:
        """Step all agents in one operation, without a host sync: inactive agents have gradient and step size 0."""
        beta_1, beta_2 = BETAS
        # The bias corrections are one number per agent and need no pass over the parameters.
        mask, bias_correction2_sqrt = (
            active.to(parameters.dtype),
            (1.0 - self.decay_v).to(parameters.dtype).sqrt(),
        )
        step_size = (
            learning_rate * bias_correction2_sqrt / (1.0 - self.decay_m).to(parameters.dtype)
        )
        lerp_weight, v_decay = (1.0 - beta_1) * mask, 1.0 - (1.0 - beta_2) * mask
        per_agent = active, lerp_weight, v_decay, EPSILON * bias_correction2_sqrt, -step_size * mask
        active, lerp_weight, v_decay, epsilon, step = (number.unsqueeze(1) for number in per_agent)
        gradient = torch.where(active, gradient, 0.0)
        self.m.lerp_(gradient, lerp_weight)
        self.v.mul_(v_decay).addcmul_(gradient, gradient, value=1.0 - beta_2)
        parameters.addcmul_(self.m / self.v.sqrt().add_(epsilon), step)

    def _step_by_agent(
        self, parameters: Tensor, gradient: Tensor, learning_rate: Tensor, active: Tensor
    ) -> None:
        """Step each active agent with PyTorch's fused kernel, which passes through memory once: faster on a CPU."""
        t, (beta_1, beta_2) = self.t.float(), BETAS
        for agent, (is_active, lr) in enumerate(
            zip(active.tolist(), learning_rate.tolist(), strict=True)
        ):
            if is_active:
                theta, g, m, v = (
                    [tensor[agent]] for tensor in (parameters, gradient, self.m, self.v)
                )
                torch._fused_adam_(theta, g, m, v, [], [t], lr=lr, beta1=beta_1, beta2=beta_2, weight_decay=0.0,
                                   eps=EPSILON, amsgrad=False, maximize=False)  # fmt: skip


def polyak(target: Tensor, online: Tensor, tau: Tensor, active: Tensor) -> None:
    """``θ' ← (1−τ) θ' + τ θ`` with a rate per agent ``[P]``; θ' stays where ``active`` ``[P]`` is false."""
    target.lerp_(
        torch.where(active.unsqueeze(1), online, target), tau.to(target.dtype).unsqueeze(1)
    )
