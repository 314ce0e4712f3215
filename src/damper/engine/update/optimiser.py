"""Adam on flat parameters ``[P, n]``, in place; inactive agents stay untouched."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

BETAS, EPSILON = (0.9, 0.999), 1e-8
FUSED_ADAM: dict[str, Any] = {"beta1": BETAS[0], "beta2": BETAS[1], "eps": EPSILON}
FUSED_ADAM |= {"weight_decay": 0.0, "amsgrad": False, "maximize": False}


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
        """New moments for parameters ``[P, n]``; ``agent_by_agent`` uses PyTorch's fused kernel."""
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
        """Update the agents for which ``active`` ``[P]`` is true; others keep what they have."""
        self.t += 1
        self.decay_m.mul_(BETAS[0])
        self.decay_v.mul_(BETAS[1])
        if not self.agent_by_agent:
            self._step_at_once(parameters, gradient, learning_rate, active)
            return
        # On a CPU, reading values waits for nothing.
        t, rates = self.t.float(), learning_rate.tolist()
        for agent, is_active in enumerate(active.tolist()):
            if is_active:
                # PyTorch's fused kernel passes through memory once: faster on a CPU.
                tensors = (parameters, gradient, self.m, self.v)
                p, g, m, v = ([tensor[agent]] for tensor in tensors)
                torch._fused_adam_(p, g, m, v, [], [t], lr=rates[agent], **FUSED_ADAM)

    def _step_at_once(
        self, parameters: Tensor, gradient: Tensor, learning_rate: Tensor, active: Tensor
    ) -> None:
        """Step all agents at once, without a host sync: inactive ones have gradient and step 0."""
        beta_1, beta_2 = BETAS
        # The bias corrections are one number per agent and need no pass over the parameters.
        mask = active.to(parameters.dtype)
        bias_correction2_sqrt = (1.0 - self.decay_v).to(parameters.dtype).sqrt()
        step_size = learning_rate * bias_correction2_sqrt
        step_size = step_size / (1.0 - self.decay_m).to(parameters.dtype)
        lerp_weight, v_decay = (1.0 - beta_1) * mask, 1.0 - (1.0 - beta_2) * mask
        epsilon, step = EPSILON * bias_correction2_sqrt, -step_size * mask
        # Zero times NaN is NaN, so a mask alone would not keep a bad gradient out.
        gradient = torch.where(active.unsqueeze(1), gradient, 0.0)
        self.m.lerp_(gradient, lerp_weight.unsqueeze(1))
        self.v.mul_(v_decay.unsqueeze(1)).addcmul_(gradient, gradient, value=1.0 - beta_2)
        direction = self.m / self.v.sqrt().add_(epsilon.unsqueeze(1))
        parameters.addcmul_(direction, step.unsqueeze(1))
