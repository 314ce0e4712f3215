from __future__ import annotations

import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3.td3 import td3

from paper.bench import peers
from paper.bench.workloads import ExecutionMode, random_transitions

DATA = random_transitions("Pendulum", 300)


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).clone()


def test_sb3_has_the_same_networks_and_transitions() -> None:
    model = peers.sb3_model(DATA, "td3", ExecutionMode(batch_size=16))
    sizes = [
        (m.in_features, m.out_features)
        for m in model.actor.modules()
        if isinstance(m, torch.nn.Linear)
    ]
    assert sizes == [(3, 400), (400, 300), (300, 1)]
    assert sum(isinstance(m, torch.nn.SiLU) for m in model.actor.modules()) == 2
    sample = model.replay_buffer.sample(64)
    row = torch.cat(
        (sample.observations, sample.actions, sample.next_observations, sample.rewards), 1
    )
    assert all((DATA.rows[:, :8] - one).abs().amax(1).min() < 1e-6 for one in row)


def test_the_paper_s_scope_leaves_sb3_s_target_copies_out_and_puts_them_back() -> None:
    copy = td3.polyak_update
    model = peers.sb3_model(DATA, "td3", ExecutionMode(batch_size=16))
    before = weights(model.critic), weights(model.critic_target), weights(model.actor)
    peers.paper_train(model, "td3", 16)(2)
    assert not torch.equal(weights(model.critic), before[0])
    assert torch.equal(weights(model.critic_target), before[1])
    assert not torch.equal(weights(model.actor), before[2])
    assert td3.polyak_update is copy
    peers.whole_train(model, 16)(2)
    assert not torch.equal(weights(model.critic_target), before[1])
