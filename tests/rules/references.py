"""The rules once more, from their equations, in numpy floats or mpmath's 400 digits.

Nothing here is shared with the package: norms and dots are formed from raw entries, branches read
values, CAGrad's minimum is searched for. With mpmath no scale overflows and no difference cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import torch

from damper.rules import RULES, has_memory, reads_loss

mpmath.mp.dps = (
    400  # norms may lie 330 orders of magnitude apart, and differences of them still count
)

Vector = np.ndarray[Any, Any]

LOSS = 0.0225  # for rules that read the auxiliary loss: a change of 0.15, half of the full one


def norm(v: Vector) -> Any:
    return (v @ v) ** 0.5


def damper(g_R: Vector, g_T: Vector, eta: float = 1.0) -> Vector:
    """The paper's Algorithm 1, line by line."""
    n_R, n_T = norm(g_R), norm(g_T)
    g_tilde = g_T
    if g_R @ g_T < 0:
        g_tilde = g_T - (g_R @ g_T) / n_R**2 * g_R
    w = min(n_T / n_R, 1) ** (1 - eta)
    return g_R + (n_R / n_T) * w * g_tilde


def damper_fading(
    g_R: Vector, g_T: Vector, full_change: float = 0.3, auxiliary_loss: float = LOSS
) -> Vector:
    if not math.isfinite(auxiliary_loss):
        return g_R
    g_tilde = g_T
    if g_R @ g_T < 0:
        g_tilde = g_T - (g_R @ g_T) / norm(g_R) ** 2 * g_R
    w = min(max(auxiliary_loss, 0) ** 0.5 / full_change, 1)
    return g_R + (norm(g_R) / norm(g_T)) * w * g_tilde


def scalarization(g_R: Vector, g_T: Vector, weight: float = 1.0) -> Vector:
    return g_R + weight * g_T


def unconditional_sum(g_R: Vector, g_T: Vector, eta: float = 1.0) -> Vector:
    n_R, n_T = norm(g_R), norm(g_T)
    return g_R + (n_R / n_T) * min(n_T / n_R, 1) ** (1 - eta) * g_T


def unconditional_projection(g_R: Vector, g_T: Vector, eta: float = 1.0) -> Vector:
    n_R, n_T = norm(g_R), norm(g_T)
    orthogonal = g_T - (g_R @ g_T) / n_R**2 * g_R
    return g_R + (n_R / n_T) * min(n_T / n_R, 1) ** (1 - eta) * orthogonal


def pegrad(g_R: Vector, g_T: Vector, cap: str = "projected") -> Vector:
    orthogonal = g_T - (g_R @ g_T) / (g_R @ g_R) * g_R
    compared = norm(orthogonal) if cap == "projected" else norm(g_T)
    return g_R + min(1, norm(g_R) / compared) * orthogonal


def pcgrad(g_R: Vector, g_T: Vector) -> Vector:
    b = g_R @ g_T
    if b >= 0:
        return g_R + g_T
    return (g_R - b / (g_T @ g_T) * g_T) + (g_T - b / (g_R @ g_R) * g_R)


def cagrad(g_R: Vector, g_T: Vector, c: float = 0.5) -> Vector:
    """The convex objective over x searched by thirds: nothing is derived from it."""
    g_0 = (g_R + g_T) / 2
    RR, RT, TT = g_R @ g_R, g_R @ g_T, g_T @ g_T

    def objective(x: Any) -> Any:
        inner = (x * (RR + RT) + (1 - x) * (RT + TT)) / 2
        return (
            inner + c * norm(g_0) * (x * x * RR + 2 * x * (1 - x) * RT + (1 - x) ** 2 * TT) ** 0.5
        )

    low, high = 0 * RR, 0 * RR + 1
    for _ in range(400):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if objective(left) <= objective(right) else (left, high)
    x = min((low, 0 * RR, 0 * RR + 1), key=objective)
    g_w = x * g_R + (1 - x) * g_T
    return g_0 + c * norm(g_0) / norm(g_w) * g_w


def mgda(g_R: Vector, g_T: Vector, normalize: bool = False) -> Vector:
    if normalize:
        g_R, g_T = g_R / norm(g_R), g_T / norm(g_T)
    apart = g_R - g_T
    if not apart.any():
        return g_R
    alpha = min(max(-(apart @ g_T) / (apart @ apart), 0), 1)
    return alpha * g_R + (1 - alpha) * g_T


def gradnorm(g_R: Vector, g_T: Vector) -> Vector:
    total = norm(g_R) + norm(g_T)
    return 2 * norm(g_T) / total * g_R + 2 * norm(g_R) / total * g_T


def cosine_gating(g_R: Vector, g_T: Vector, weighted: bool = True) -> Vector:
    c = (g_R @ g_T) / (norm(g_R) * norm(g_T))
    return g_R + (max(0, c) if weighted else int(c >= 0)) * g_T


def dynamic_barrier(g_R: Vector, g_T: Vector, weight: float = 1.0, beta: float = 1.0) -> Vector:
    rho = (g_R @ g_T) / (g_R @ g_R)
    return weight * g_T + max(beta - weight * rho, 0) * g_R


def gcr_ppo(g_R: Vector, g_T: Vector, weight: float = 1.0) -> Vector:
    rho = (g_R @ g_T) / (g_R @ g_R)
    return g_R + weight * (g_T - min(rho, 0) * g_R)


def bloop(g_R: Vector, g_T: Vector, weight: float = 1.0, rate: float = 0.1) -> Vector:
    """The first step, at which the primary stands in for its moving average."""
    return g_R + weight * (g_T - (g_T @ g_R) / (g_R @ g_R) * g_R)


def metabalance(g_R: Vector, g_T: Vector, r: float = 0.7, beta: float = 0.9) -> Vector:
    """The first step, at which the averages' ratio is that of the norms."""
    return g_R + r * (norm(g_R) / norm(g_T)) * g_T + (1 - r) * g_T


def nash_mtl(g_R: Vector, g_T: Vector) -> Vector:
    c = (g_R @ g_T) / (norm(g_R) * norm(g_T))
    return (g_R / norm(g_R) + g_T / norm(g_T)) / (1 + c) ** 0.5


REFERENCES: dict[str, Callable[..., Vector]] = {
    name: function for name in RULES if (function := globals().get(name.replace("-", "_")))
}
assert (missing := RULES.keys() - REFERENCES.keys()) == set(), (
    f"no reference for {sorted(missing)}: write its equation as a function of that name above, for "
    "two vectors of "
    "numpy floats or mpmath's numbers, without anything from the package"
)


def digits(tensor: torch.Tensor) -> Vector:
    """A vector's exact values in mpmath's numbers."""
    return np.array([mpmath.mpf(x) for x in tensor.double().tolist()], dtype=object)


def expected(name: str, primary: torch.Tensor, auxiliary: torch.Tensor, **settings: Any) -> Vector:
    """What the rule should give for two vectors, to 400 digits."""
    return REFERENCES[name](digits(primary), digits(auxiliary), **settings)


def error(g: torch.Tensor, exact: Vector) -> float:
    """``‖g − exact‖ / ‖exact‖``, without overflow."""
    return float(norm(digits(g) - exact) / norm(exact))


def loss_argument(name: str) -> dict[str, Any]:
    """What a rule needs besides the two gradients."""
    return {"auxiliary_loss": LOSS} if reads_loss(name) else {}


def combined(
    name: str, primary: torch.Tensor, auxiliary: torch.Tensor, **settings: Any
) -> torch.Tensor:
    """The package's own answer, memory left aside."""
    out = RULES[name](primary, auxiliary, **loss_argument(name) | settings)
    answer: torch.Tensor = out[0] if has_memory(name) else out
    return answer


def pairs(
    count: int, n: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pairs [count, n] that cover conflict and agreement alike, of comparable norms."""
    generator = torch.Generator().manual_seed(seed)
    primary, noise = (
        torch.randn(count, n, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    slope = torch.linspace(-2.0, 2.0, count, dtype=torch.float64).unsqueeze(1)
    return primary.to(dtype), (noise + slope * primary).to(dtype)
