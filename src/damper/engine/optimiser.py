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
        self.t += 1
        if parameters.is_cpu and not torch.compiler.is_compiling():
            self._step_by_row(parameters, gradient, learning_rate, keep)
        else:
            self._step_at_once(parameters, gradient, learning_rate, keep)

    def _step_at_once(self, parameters: Tensor, gradient: Tensor, learning_rate: Tensor, keep: Tensor) -> None:
        """All rows in place, no value read: what is not kept has the gradient, the rates and the step 0."""
        on = keep.unsqueeze(1).to(parameters.dtype)
        gradient = gradient.nan_to_num(0.0, 0.0, 0.0) * on
        beta_1, beta_2 = BETAS
        self.m.lerp_(gradient, (1.0 - beta_1) * on)
        self.v.mul_(1.0 - (1.0 - beta_2) * on).addcmul_(gradient, gradient, value=1.0 - beta_2)
        # The moments' corrections are numbers per agent: they need no pass over the parameters.
        root = (1.0 - beta_2**self.t).sqrt()
        size = (learning_rate * root / (1.0 - beta_1**self.t)).to(on.dtype).unsqueeze(1)
        length = self.v.sqrt().add_((EPSILON * root).to(on.dtype))
        parameters.addcmul_(self.m / length, -size * on)

    def _step_by_row(self, parameters: Tensor, gradient: Tensor, learning_rate: Tensor, keep: Tensor) -> None:
        """The same with PyTorch's fused kernel: a CPU waits for memory here, and this passes through it once."""
        t, (beta_1, beta_2) = self.t.float(), BETAS
        for row, (kept, rate) in enumerate(zip(keep.tolist(), learning_rate.tolist(), strict=True)):
            if kept:
                theta, g, m, v = ([tensor[row]] for tensor in (parameters, gradient, self.m, self.v))
                torch._fused_adam_(theta, g, m, v, [], [t], lr=rate, beta1=beta_1, beta2=beta_2, weight_decay=0.0,
                                   eps=EPSILON, amsgrad=False, maximize=False)  # fmt: skip


def polyak(target: Tensor, online: Tensor, tau: Tensor, keep: Tensor) -> None:
    """``θ' ← (1−τ) θ' + τ θ`` with a rate per agent ``[P]``; where ``keep`` ``[P]`` is false, θ' stays."""
    target.lerp_(online.nan_to_num(), (tau * keep).to(target.dtype).unsqueeze(1))
