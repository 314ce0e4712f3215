"""Stable-Baselines3 as the reference: the same weights, batches and noise, its own update."""

from __future__ import annotations

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from damper.engine.networks.layout import Layout
from damper.engine.update.population import Population
from damper.interface import Batch

OBS, ACT, ARCH, BATCH = 5, 2, (32, 24), 16


class _Spaces(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACT,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(OBS, np.float32), {}

    def step(self, action):
        return np.zeros(OBS, np.float32), 0.0, False, False, {}


def model(backbone: str, dtype: torch.dtype, monkeypatch, **settings):
    """An SB3 model of the test's sizes, in the given precision."""
    kind = {"td3": stable_baselines3.TD3, "sac": stable_baselines3.SAC}[backbone]
    policy = {"net_arch": list(ARCH), "activation_fn": torch.nn.SiLU}
    made = kind("MlpPolicy", _Spaces(), policy_kwargs=policy, device="cpu", seed=3, **settings)
    made.set_logger(configure(None, []))
    made.policy.to(dtype)
    if dtype == torch.float64:
        monkeypatch.setattr(
            "stable_baselines3.common.policies.preprocess_obs", lambda obs, *a, **k: obs
        )
        if getattr(made, "log_ent_coef", None) is not None:
            made.log_ent_coef.data = made.log_ent_coef.data.double()
        elif backbone == "sac":
            made.ent_coef_tensor = torch.tensor(made.ent_coef, dtype=dtype)
    return made


def layers(module) -> list[torch.nn.Linear]:
    """The linear layers in order."""
    return [m for m in module.modules() if isinstance(m, torch.nn.Linear)]


def row(linears, layout: Layout) -> torch.Tensor:
    """One flat row in our layout."""
    return layout.flatten(
        [t[None] for m in linears for t in (m.weight.detach().T, m.bias.detach()[None])]
    )[0]


def rows(made, population: Population, backbone: str) -> dict[str, torch.Tensor]:
    """SB3's parameters as our state tensors."""
    actor, critic = population.networks.actor_layout, population.networks.critic_layout
    found = {"actor": row(layers(made.actor), actor)}
    for name in ("critic", "critic_target"):
        found[name] = torch.cat([row(layers(q), critic) for q in getattr(made, name).q_networks])
    if backbone == "td3":
        found["actor_target"] = row(layers(made.actor_target), actor)
    if getattr(made, "log_ent_coef", None) is not None:
        found["log_ent_coef"] = made.log_ent_coef.detach().reshape(1)
    return found


def load(population: Population, made, backbone: str) -> None:
    """Put SB3's weights into every agent of the population."""
    for name, value in rows(made, population, backbone).items():
        population.state()[name].copy_(value.expand_as(population.state()[name]))


def batch(generator: torch.Generator, dtype: torch.dtype) -> Batch:
    """A random batch without population axis."""
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype)  # noqa: E731
    done = (torch.rand(BATCH, generator=generator) < 0.2).to(dtype)
    return Batch(
        draw(BATCH, OBS), draw(BATCH, ACT).clamp(-1, 1), draw(BATCH), draw(BATCH, OBS), done
    )


def train_once(made, given: Batch, seed: int, monkeypatch) -> None:
    """SB3's own ``train`` on exactly this batch, its noise drawn after ``manual_seed(seed)``."""
    samples = ReplayBufferSamples(
        given.obs, given.action, given.next_obs, given.terminated[:, None], given.reward[:, None]
    )
    monkeypatch.setattr(made.replay_buffer, "sample", lambda *a, **k: samples)
    torch.manual_seed(seed)
    made.train(gradient_steps=1, batch_size=BATCH)


def noise(backbone: str, given: Batch, seed: int) -> dict[str, torch.Tensor]:
    """The standard normals that SB3 draws in ``train_once``."""
    torch.manual_seed(seed)
    if backbone == "td3":
        return {"target": given.action.clone().normal_(0, 1.0)}
    zeros = torch.zeros_like(given.action)
    draws = [torch.normal(zeros, torch.ones_like(zeros)) for _ in range(2)]
    return {"policy": draws[0], "target": draws[1]}
