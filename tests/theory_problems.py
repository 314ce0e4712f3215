"""Gradient pairs of known geometry and losses of known smoothness, for the tests of the theory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

Loss = Callable[[Tensor], Tensor]
COSINES = (-1.0, -1 + 1e-9, -0.9, -0.5, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 0.5, 0.9, 1 - 1e-9, 1.0)
KINDS = ("isotropic", "saddle", "convex quadratic", "log-cosh", "logistic", "waves")


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng)


def uniform(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=rng)


def with_cosine(g_R: Tensor, c: Tensor, ratio: Tensor, rng: torch.Generator) -> Tensor:
    """A random g_T of cosine ``c`` to ``g_R`` and norm ``ratio · n_R``; one per leading index."""
    n_R = g_R.norm(dim=-1, keepdim=True)
    u, v = g_R / n_R, normal(rng, *g_R.shape)
    for _ in range(2):  # twice, for digits
        v = v - (u * v).sum(-1, keepdim=True) * u
        v = v / v.norm(dim=-1, keepdim=True)
    c = c.unsqueeze(-1)
    return ratio.unsqueeze(-1) * n_R * (c * u + (1 - c * c).sqrt() * v)


def pairs(rng: torch.Generator, count: int, n: int) -> tuple[Tensor, Tensor]:
    """Half random, half adversarial (nearly collinear or orthogonal), n_T/n_R over 1e±6."""
    g_R = normal(rng, count, n) * 10 ** (6 * uniform(rng, count, 1) - 3)
    drawn = 2 * uniform(rng, count) - 1
    listed = torch.tensor(COSINES).repeat(count // len(COSINES) + 1)[:count]
    c = torch.where(torch.arange(count) % 2 == 0, drawn, listed)
    ratio = 10 ** (12 * uniform(rng, count) - 6)
    ratio[::10] = 1.0  # the kink of the cap
    return g_R, with_cosine(g_R, c, ratio, rng)


def problem(g_R: Tensor, g_T: Tensor, eta: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``n_R, u_R, s_η, g_target(s_η)`` as section 4.2 has them, cap-only to norm-matched."""
    n_R, n_T = g_R.norm(dim=-1), g_T.norm(dim=-1)
    s = torch.minimum(n_T, n_R) ** (1 - eta) * n_R**eta
    return n_R, g_R / n_R[:, None], s, g_R + (s / n_T)[:, None] * g_T


def closest(t: np.ndarray, r: np.ndarray) -> np.ndarray:
    """The x closest to ``t`` with ``⟨r, x⟩ ≥ 0``, from a general solver."""
    solved = minimize(
        lambda x: np.sum((x - t) ** 2),
        x0=r,
        jac=lambda x: 2 * (x - t),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda x: r @ x, "jac": lambda x: r},
        options={"ftol": 1e-14},
    )
    assert solved.success
    return solved.x


def decades(low: float, high: float, count: int = 25) -> Tensor:
    return 10 ** torch.linspace(low, high, count)


def grid(rng: torch.Generator, qs: Tensor, n: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(q, c, g_R, g_T) over all cosines and the given ratios."""
    q, c = (x.flatten() for x in torch.meshgrid(qs, torch.tensor(COSINES), indexing="ij"))
    g_R = normal(rng, len(q), n)
    return q, c, g_R, with_cosine(g_R, c, q, rng)


def smooth_problem(
    kind: str, rng: torch.Generator, n: int = 6, rows: int = 10
) -> tuple[Loss, float]:
    """A loss whose Hessian ``V' diag(σ'') V`` with ``|σ''| ≤ bound`` gives its smoothness."""
    V, a = normal(rng, rows, n), normal(rng, rows).abs() + 0.1
    if kind == "isotropic":
        centre = normal(rng, n)
        return lambda x: 1.5 * (x - centre).square().sum(-1), 3.0
    if kind == "saddle":
        H = normal(rng, n, n)
        H = H + H.T
        return lambda x: 0.5 * ((x @ H) * x).sum(-1), float(torch.linalg.eigvalsh(H).abs().max())
    shape, bound = {
        "convex quadratic": (lambda z: 0.5 * z.square(), 1.0),
        "log-cosh": (lambda z: torch.nn.functional.softplus(2 * z) - z, 1.0),
        "logistic": (torch.nn.functional.softplus, 0.25),
        "waves": (torch.cos, 1.0),
    }[kind]
    return lambda x: (a * shape(x @ V.T)).sum(-1), bound * float(
        torch.linalg.eigvalsh(V.T @ (a[:, None] * V)).max()
    )


def gradient(loss: Loss, point: Tensor) -> Tensor:
    point = point.clone().requires_grad_()
    return torch.autograd.grad(loss(point).sum(), point)[0]
