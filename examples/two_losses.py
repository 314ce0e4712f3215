"""No reinforcement learning: fit noisy points with a curve that bends little.

A weighted sum trades one loss against the other, and a weight that is too large costs the fit.
DAMPER needs no weight: what opposes the fit is removed from the second gradient, and the rest is
scaled to the first one's length.
"""

from __future__ import annotations

import torch
from torch import nn

import damper


def curvature(model: nn.Module, x: torch.Tensor, h: float = 0.05) -> torch.Tensor:
    """Mean square of the second difference."""
    return (model(x + h) - 2 * model(x) + model(x - h)).square().mean() / h**4


def train(how: str, steps: int) -> dict[str, float]:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 40)[:, None]
    y = torch.sin(3 * x) + 0.1 * torch.randn_like(x)
    between = torch.linspace(-1, 1, 200)[:, None]
    model = nn.Sequential(
        nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    conflicts = 0.0
    for _ in range(steps):
        fit, bend = (model(x) - y).square().mean(), curvature(model, between)
        if how == "fit alone":
            optimiser.zero_grad()
            fit.backward()
        elif how == "weighted sum":
            damper.backward(fit, bend, model.parameters(), rule="scalarization", weight=0.1)
        else:
            conflicts += damper.backward(fit, bend, model.parameters(), eta=1.0).conflict.item()
        optimiser.step()
    return {"fit": fit.item(), "curvature": bend.item(), "conflict": conflicts / steps}


def main(steps: int = 2000) -> dict[str, dict[str, float]]:
    results = {how: train(how, steps) for how in ("fit alone", "weighted sum", "DAMPER")}
    for how, row in results.items():
        print(f"{how:>12}  fit {row['fit']:.5f}  curvature {row['curvature']:.2f}")
    return results


if __name__ == "__main__":
    main()
