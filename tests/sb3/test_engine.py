"""From the same weights, batch and noise our SB3 update is the engine's, tensor by tensor."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from damper.agents import BACKBONES
from damper.engine.data.random_streams import Streams
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.networks.layout import Layout, weight_list
from damper.engine.update.population import Population
from damper.interface import Batch
from damper.methods import Method, find_method
from damper.sb3.common.off_policy import UpdateInputs
from tests.sb3.models import OURS, quiet

OBS, ACT, ARCH, BATCH = 5, 2, (24, 20), 16
TOLERANCE = 1e-5
HYPER = {"learning_rate": 1e-3, "gamma": 0.98, "tau": 0.005}
OWN = {
    "td3": {"target_policy_noise": 0.2, "target_noise_clip": 0.5, "action_noise": 0.1},
    "sac": {"ent_coef": 0.2},
}
COMPARED = [
    "plain",
    "damper",
    "scalarization",
    "bloop",
    "metabalance",
    "caps",
    "grad-caps",
    "asap",
    "l2c2",
    "pave",
]
COMPARED += ["l2c2-released", "damper+asap+pave"]


class Spaces(gymnasium.Env[Any, Any]):
    """Of the test's sizes; it is never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACT,), np.float32)


def build(backbone: str, method: str) -> Any:
    own = {"ent_coef": 0.2} if backbone == "sac" else {"policy_delay": 1}
    policy = {"net_arch": list(ARCH), "activation_fn": torch.nn.SiLU}
    settings = {"seed": 3, "device": "cpu", "buffer_size": 10, **HYPER, **own}
    return quiet(
        OURS[backbone]("MlpPolicy", Spaces(), method=method, policy_kwargs=policy, **settings)
    )


def layers(module: Any) -> list[torch.nn.Linear]:
    return [m for m in module.modules() if isinstance(m, torch.nn.Linear)]


def rows(layout: Layout, tensors: list[torch.Tensor]) -> torch.Tensor:
    """Weights and biases as the engine's rows, a row per network."""
    each = 2 * len(layout.layers)
    flat = [(t.T if t.ndim == 2 else t)[None].detach() for t in tensors]
    return torch.cat([layout.flatten(flat[i : i + each]) for i in range(0, len(flat), each)])


def parameters(model: Any, name: str) -> list[torch.Tensor]:
    """The tensors of one network in the engine's order; a second head comes last."""
    module = getattr(model, name)
    linears = (
        [layer for q in module.q_networks for layer in layers(q)]
        if "critic" in name
        else layers(module)
    )
    if name == "actor" and model._method.prediction:
        linears = [*linears, model.method_state.head]
    return [tensor for layer in linears for tensor in (layer.weight, layer.bias)]


def engine_like(model: Any, backbone: str, method: Method) -> Population:
    """The engine's single agent with the model's weights."""
    hparams = {name: torch.full((1,), value) for name, value in {**HYPER, **OWN[backbone]}.items()}
    shape = NetworkSizes(OBS, ACT, ARCH)
    networks = AgentNetworks(backbone, method, shape, Streams([0]), torch.float32)
    engine = Population(networks, hparams=hparams, method_kwargs=method.route({}))
    for name in ("actor", "critic", "critic_target", "actor_target", "actor_average"):
        if name in engine.state():
            layout = (
                engine.networks.critic_layout if "critic" in name else engine.networks.actor_layout
            )
            values = rows(layout, parameters(model, "actor" if "actor" in name else name))
            engine.state()[name].copy_(values.reshape(engine.state()[name].shape))
    return engine


def some_batch() -> Batch:
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    done = (torch.rand(BATCH, generator=generator) < 0.2).float()
    batch = Batch(
        draw(BATCH, OBS), draw(BATCH, ACT).clamp(-1, 1), draw(BATCH), draw(BATCH, OBS), done
    )
    return batch._replace(previous_obs=draw(BATCH, OBS), progress=0.5)


def train_once(
    model: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> dict[str, torch.Tensor]:
    """Our ``train`` on exactly this batch; returns the noise it used."""
    own = {name: kind.draw(batch, model._generator) for name, kind in model._method.noise.items()}
    draw = UpdateInputs(batch, batch, HYPER["gamma"], own)
    monkeypatch.setattr(model, "_sample_inputs", lambda batch_size: draw)
    torch.manual_seed(5)
    model.train(gradient_steps=1, batch_size=BATCH)
    torch.manual_seed(5)
    if model.backbone is BACKBONES["td3"]:
        return {**own, "target": batch.action.clone().normal_(0, 1.0)}
    zeros = torch.zeros(BATCH, ACT)
    drawn = [torch.normal(zeros, torch.ones_like(zeros)) for _ in range(2)]
    return {**own, "policy": drawn[0], "target": drawn[1]}


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_one_update_equals_the_engine(backbone, name, monkeypatch):
    model, method = build(backbone, name), find_method(name)
    engine = engine_like(model, backbone, method)
    batch = some_batch()
    noise = train_once(model, batch, monkeypatch)
    stacked = batch._replace(
        **{k: v[None] for k, v in batch._asdict().items() if isinstance(v, torch.Tensor)}
    )
    engine.update_on(stacked, {key: draw[None] for key, draw in noise.items()}, with_actor=True)
    for part, layout in (
        ("actor", engine.networks.actor_layout),
        ("critic", engine.networks.critic_layout),
    ):
        # Adam's first moment after one step is (1 − β₁) g: the gradient that each of the two saw.
        moments = getattr(model, part).optimizer.state
        gradient = rows(layout, [moments[tensor]["exp_avg"] for tensor in parameters(model, part)])
        moved = rows(layout, parameters(model, part))
        for ours, name in ((gradient, f"{part}.m"), (moved, part)):
            theirs = weight_list(layout.unflatten(engine.state()[name].reshape(-1, layout.size)))
            for mine, other in zip(weight_list(layout.unflatten(ours)), theirs, strict=True):
                assert other.norm() > 0
                assert (mine - other).norm() <= TOLERANCE * other.norm(), name
