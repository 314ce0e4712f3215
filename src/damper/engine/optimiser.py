"""Adam and Polyak averaging on flat rows, per agent, in place; agents that are not to be kept going stay untouched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass
class Adam:
    """``torch.optim.Adam`` for rows ``[P, n]`` with a learning rate per agent.

    ``m ← β₁m + (1−β₁)g``, ``v ← β₂v + (1−β₂)g²``, ``θ ← θ − lr · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε)``.
    """

    m: Tensor
    v: Tensor
    t: Tensor

    @classmethod
    def like(cls, parameters: Tensor) -> Adam:
        """Fresh moments."""
        t = torch.zeros((), dtype=torch.float64, device=parameters.device)
        return cls(torch.zeros_like(parameters), torch.zeros_like(parameters), t)

    def step(self, parameters: Tensor, gradient: Tensor, learning_rate: Tensor, keep: Tensor) -> None:
        """Move the rows where ``keep`` ``[P]`` is true; the others' parameters and moments stay."""
        keep = keep.unsqueeze(1)
        self.t += 1
        beta_1, beta_2 = BETAS
        m = torch.lerp(gradient, self.m, beta_1)
        v = torch.addcmul(self.v * beta_2, gradient, gradient, value=1.0 - beta_2)
        size = (learning_rate / (1.0 - beta_1**self.t)).to(m.dtype).unsqueeze(1)
        root = (1.0 - beta_2**self.t).sqrt().to(m.dtype)
        moved = parameters - size * m / (v.sqrt() / root + EPSILON)
        for old, new in ((parameters, moved), (self.m, m), (self.v, v)):
            old.copy_(torch.where(keep, new, old))


def polyak(target: Tensor, online: Tensor, tau: Tensor, keep: Tensor) -> None:
    """``θ' ← (1−τ) θ' + τ θ`` with a rate per agent ``[P]``; where ``keep`` ``[P]`` is false, θ' stays."""
    moved = torch.lerp(target, online, tau.unsqueeze(1).to(target.dtype))
    target.copy_(torch.where(keep.unsqueeze(1), moved, target))
