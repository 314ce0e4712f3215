from __future__ import annotations

import pytest
import torch

from damper.engine.data.random_streams import Streams
from damper.losses.temporal import temporal
from damper.losses.temporal_ramp import temporal_ramp
from tests.losses.helpers import (
    SEEDS,
    LinearPolicy,
    actor_loss,
    draws,
    population,
    single_batch,
    stacked_batch,
)


def test_by_hand():
    batch = single_batch()._replace(
        obs=torch.zeros(2, 2),
        next_obs=torch.tensor([[3.0, 4.0], [1.0, 0.0]]),
        terminated=torch.tensor([0.0, 1.0]),
    )
    assert temporal_ramp(
        lambda s: s, batch._replace(progress=0.5), {}, weight=0.2
    ).item() == pytest.approx(0.1 * 25)
    everything = temporal_ramp(
        lambda s: s, batch._replace(progress=1.0), {}, weight=0.2, mask_terminal=False
    )
    assert everything.item() == pytest.approx(0.2 * 13)


def test_it_starts_from_nothing():
    policy, batch = LinearPolicy(), single_batch()._replace(progress=torch.tensor(0.0))
    gradient = torch.autograd.grad(temporal_ramp(policy, batch, {}), policy.K)[0]
    assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_networks_with_a_weight_per_agent(backbone):
    weight = torch.tensor([0.1, 0.0, 2.0], dtype=torch.float64)
    agents, streams = population("temporal-ramp", backbone, weight=weight), Streams(SEEDS)
    batch = stacked_batch(streams, 10)
    losses = actor_loss(agents, agents.state()["actor"], batch, draws(agents, streams, 10))
    torch.testing.assert_close(losses, weight * 0.25 * temporal(agents.networks.actor(), batch, {}))
