"""Policies and critics to differentiate by hand, small populations, and finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from damper.engine.data.random_streams import Streams
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.update.population import Population
from damper.interface import Batch
from damper.methods import Method, find_method

OBS, ACT, BATCH = 3, 2, 5
SEEDS = (11, 22, 33)
HYPER = {
    "learning_rate": 1e-3, "gamma": 0.98, "tau": 0.01, "ent_coef": 0.2,
    "target_policy_noise": 0.2, "target_noise_clip": 0.5, "action_noise": 0.1,
}  # fmt: skip


class LinearPolicy:
    """``μ(s) = K s``, ``log σ(s) = C s``, ``P(s) = H s`` and ``P̄(s) = A s``; no population axis."""

    def __init__(self, stochastic: bool = False, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        draw = [0.5 * torch.randn(OBS, ACT, generator=g, dtype=torch.float64) for _ in range(4)]
        self.K, self.C, self.H, self.A = (matrix.requires_grad_() for matrix in draw)
        self.stochastic = stochastic

    def __call__(self, obs: Tensor) -> Tensor:
        return obs @ self.K

    def distribution(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return obs @ self.K, obs @ self.C

    def prediction(self, obs: Tensor) -> Tensor:
        return obs @ self.H

    def averaged_prediction(self, obs: Tensor) -> Tensor:
        return obs @ self.A


class QuadraticCritic:
    """``Q_j(s, a) = ½ aᵀ M_j a + aᵀ N_j s + n_jᵀ s``; no population axis."""

    def __init__(self, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        M = torch.randn(2, ACT, ACT, generator=g, dtype=torch.float64)
        self.M = (M + M.mT).requires_grad_()
        self.N = torch.randn(2, ACT, OBS, generator=g, dtype=torch.float64).requires_grad_()
        self.n = torch.randn(2, OBS, generator=g, dtype=torch.float64).requires_grad_()

    def __call__(self, obs: Tensor, action: Tensor) -> Tensor:
        a = action if action.ndim == 3 else action.expand(2, -1, -1)
        bilinear = torch.einsum("jbi,jik,bk->jb", a, self.N, obs)
        return (
            0.5 * torch.einsum("jbi,jik,jbk->jb", a, self.M, a)
            + bilinear
            + torch.einsum("jk,bk->jb", self.n, obs)
        )

    def first(self, obs: Tensor, action: Tensor) -> Tensor:
        return self(obs, action)[0]


def single_batch(seed: int = 0) -> Batch:
    """One agent's transitions without a population axis, float64."""
    g = torch.Generator().manual_seed(seed)
    obs, next_obs, before = torch.randn(3, BATCH, OBS, generator=g, dtype=torch.float64)
    action, reward = (
        torch.rand(BATCH, ACT, generator=g).double() * 2 - 1,
        torch.randn(BATCH, generator=g).double(),
    )
    terminated = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    return Batch(obs, action, reward, next_obs, terminated, before, progress=0.25)


def arrays(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``s⁻, s, s'`` for numpy."""
    return batch.previous_obs.numpy(), batch.obs.numpy(), batch.next_obs.numpy()


def population(
    method: str | Method,
    backbone: str,
    seeds: tuple[int, ...] = SEEDS,
    dtype: torch.dtype = torch.float64,
    **settings: Any,
) -> Population:
    """Small fresh agents."""
    method = find_method(method)
    hparams = {name: torch.full((len(seeds),), value, dtype=dtype) for name, value in HYPER.items()}
    shape = NetworkSizes(OBS, ACT, net_arch=(6, 5))
    return Population(
        AgentNetworks(backbone, method, shape, Streams(seeds), dtype),
        hparams=hparams,
        method_kwargs=method.route(settings),
    )


def stacked_batch(
    streams: Streams, k: int, dtype: torch.dtype = torch.float64, size: int = BATCH
) -> Batch:
    """The k-th batch of each agent, a function of its seed alone, ``[P, B, ·]``."""

    def draw(purpose: str, *tail: int) -> Tensor:
        return streams.normal(f"data.{purpose}", k, (size, *tail), dtype)

    obs, before, step = (draw(purpose, OBS) for purpose in ("obs", "before", "step"))
    terminated = (draw("terminated") > 1.5).to(dtype)
    return Batch(
        obs,
        draw("action", ACT).tanh(),
        draw("reward"),
        obs + 0.3 * step,
        terminated,
        before,
        progress=k / 40,
    )


def draws(agents: Population, streams: Streams, k: int, size: int = BATCH) -> dict[str, Tensor]:
    """What one update draws."""
    dims: dict[Any, tuple[int, ...]] = {"obs": (OBS,), "action": (ACT,), None: ()}
    return {
        name: getattr(streams, kind.kind)(name, k, (size, *dims[kind.like]), agents.dtype)
        for name, kind in agents.noise_kinds.items()
    }


def train(agents: Population, seeds: tuple[int, ...] = SEEDS, updates: int = 20) -> Population:
    """So many updates, TD3's actor on every second."""
    streams = Streams(seeds)
    for k in range(updates):
        with_actor = not agents.backbone.HAS_ACTOR_TARGET or k % 2 == 1
        batch, noise = stacked_batch(streams, k, agents.dtype), draws(agents, streams, k)
        agents.update_on(batch, noise, with_actor)
    return agents


def slope_error(
    loss: Callable[[], Tensor], parameters: list[Tensor], seed: int = 0, step: float = 1e-6
) -> float:
    """Relative difference of autograd's slope and a central difference along a random direction."""
    gradients = torch.autograd.grad(loss().sum(), parameters, materialize_grads=True)
    g = torch.Generator().manual_seed(seed)
    direction = [torch.randn(p.shape, generator=g, dtype=p.dtype) for p in parameters]
    slope = sum(
        float((d * gradient).sum()) for d, gradient in zip(direction, gradients, strict=True)
    )
    values = []
    for sign in (1.0, -2.0, 1.0):
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.add_(sign * step * d)
        values.append(float(loss().detach().sum()))
    return abs((values[0] - values[1]) / (2 * step) - slope) / max(abs(slope), 1e-8)


def actor_loss(
    agents: Population, row: Tensor, batch: Batch, noise: Mapping[str, Tensor]
) -> Tensor:
    """The method's actor loss with the actors' flat parameters ``row``, ``[P]``."""
    policy = agents.networks.actor(agents.networks.actor_layout.unflatten(row))
    return agents.method.actor(policy, batch, noise, **agents.method_kwargs["actor"])


def critic_loss(
    agents: Population, row: Tensor, batch: Batch, noise: Mapping[str, Tensor]
) -> Tensor:
    """The method's critic loss with the critics' flat parameters ``row``, ``[P]``."""
    critic = agents.networks.critic(
        agents.networks.critic_layout.unflatten(row.reshape(2 * agents.n_agents, -1))
    )
    return agents.method.critic(
        critic, agents.networks.actor(), batch, noise, **agents.method_kwargs["critic"]
    )


def numpy_actor(agents: Population, j: int) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Agent j's actor written out: heads by name, ``mu`` before its tanh."""
    layers = {
        name: (w[j].numpy(), b[j].numpy())
        for name, (w, b) in agents.networks.actor_layout.unflatten(agents.state()["actor"]).items()
    }

    def forward(obs: np.ndarray) -> dict[str, np.ndarray]:
        x = obs
        for name, (w, b) in layers.items():
            if name.startswith("trunk"):
                x = x @ w + b
                x = x / (1.0 + np.exp(-x))
        return {name: x @ w + b for name, (w, b) in layers.items() if not name.startswith("trunk")}

    return forward
