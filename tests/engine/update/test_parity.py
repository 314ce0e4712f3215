"""Fifty consecutive updates equal Stable-Baselines3's, tensor by tensor."""

from __future__ import annotations

import pytest
import torch

from damper.engine.data.random_streams import Streams
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.networks.layout import weight_list
from damper.engine.update.population import Population
from damper.interface import Batch
from damper.methods import METHODS

sb3 = pytest.importorskip("stable_baselines3")
from tests.engine import sb3_reference as reference  # noqa: E402

UPDATES = 50
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
HYPER = {"learning_rate": 1e-3, "gamma": 0.98, "tau": 0.005}
TD3 = {"target_policy_noise": 0.2, "target_noise_clip": 0.5, "action_noise": 0.1}


def build(
    backbone: str,
    dtype: torch.dtype,
    ent_coef: float | str,
    fused: bool,
) -> Population:
    own = TD3 if backbone == "td3" else {"ent_coef": 1.0 if ent_coef == "auto" else ent_coef}
    hparams = {
        name: torch.full((1,), value, dtype=dtype) for name, value in {**HYPER, **own}.items()
    }
    shape = NetworkSizes(reference.OBS, reference.ACT, reference.ARCH)
    plain = METHODS["plain"]
    return Population(
        AgentNetworks(backbone, plain, shape, Streams([0]), dtype),
        hparams=hparams,
        method_kwargs=plain.route({}),
        automatic_entropy=ent_coef == "auto",
        fused=fused,
    )


def tensors(population: Population, name: str, flat: torch.Tensor) -> list[torch.Tensor]:
    """A state row as its layers' weights and biases."""
    if name == "log_ent_coef":
        return [flat]
    layout = (
        population.networks.actor_layout
        if name.startswith("actor")
        else population.networks.critic_layout
    )
    return weight_list(layout.unflatten(flat.reshape(-1, layout.size)))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("backbone", "ent_coef"), [("td3", 0.0), ("sac", 0.2), ("sac", "auto")])
def test_updates_equal_sb3(backbone, ent_coef, dtype, fused, monkeypatch):
    extra = {} if backbone == "td3" else {"ent_coef": ent_coef}
    made = reference.model(backbone, dtype, monkeypatch, **HYPER, **extra)
    population = build(backbone, dtype, ent_coef, fused)
    reference.load(population, made, backbone)
    before = {name: value.clone() for name, value in population.state().items()}
    generator = torch.Generator().manual_seed(0)
    for k in range(UPDATES):
        given = reference.batch(generator, dtype)
        reference.train_once(made, given, k, monkeypatch)
        noise = {name: draw[None] for name, draw in reference.noise(backbone, given, k).items()}
        stacked = Batch(*(part[None] for part in given[:5]))
        population.update_on(stacked, noise, with_actor=backbone == "sac" or (k + 1) % 2 == 0)
    for name, theirs in reference.rows(made, population, backbone).items():
        ours = population.state()[name]
        assert not torch.equal(ours, before[name]), name
        for a, b in zip(
            tensors(population, name, ours), tensors(population, name, theirs[None]), strict=True
        ):
            assert (a - b).norm() <= TOLERANCE[dtype] * b.norm(), name
