"""A rule of your own: a function of two gradients, as `damper.backward` and `damper.sb3` take it.

``damper.train`` and the command line take its name in ``damper.rules.RULES``, by which a run's
files tell it. This one adds the auxiliary gradient only where both agree in sign, entry by entry,
and never more than the primary has.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import damper
from damper.rules import RULES


def agreement(primary: Tensor, auxiliary: Tensor, *, cap: float | Tensor = 1.0) -> Tensor:
    """``g = g_R + 1[g_R g_T > 0] · clip(g_T, ±cap |g_R|)``, batched as all rules are."""
    if isinstance(cap, Tensor):  # in a sweep of damper.train: one value per agent
        cap = cap.unsqueeze(-1)
    limit = cap * primary.abs()
    return primary + torch.where(primary * auxiliary > 0, auxiliary.clamp(-limit, limit), 0.0)


def main(steps: int = 300) -> dict[str, float]:
    torch.manual_seed(0)
    actor = nn.Sequential(nn.Linear(4, 32), nn.SiLU(), nn.Linear(32, 2), nn.Tanh())
    # Stands for what a critic prefers.
    wish = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2), nn.Tanh())
    optimiser = torch.optim.Adam(actor.parameters(), lr=1e-3)
    for _ in range(steps):
        obs = torch.randn(256, 4)
        next_obs = obs + 0.1 * torch.randn_like(obs)
        actor_loss = (actor(obs) - wish(obs).detach()).square().sum(1).mean()
        temporal_loss = damper.temporal_loss(actor, obs, next_obs)
        report = damper.backward(
            actor_loss, temporal_loss, actor.parameters(), rule=agreement, cap=0.5
        )
        optimiser.step()
    # The SB3 classes take it too, TD3("MlpPolicy", env, rule=agreement, cap=0.5), and the registry
    # gives it a name.
    RULES["agreement"] = agreement
    again = damper.backward(
        (actor(obs) - wish(obs).detach()).square().mean(),
        damper.temporal_loss(actor, obs, next_obs),
        actor.parameters(),
        rule="agreement",
    )
    del RULES["agreement"]
    return {
        "loss": actor_loss.item(),
        "weight": report.weight.item(),
        "by_name": again.weight.item(),
    }


if __name__ == "__main__":
    print(main())
