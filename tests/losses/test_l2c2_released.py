from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from damper.engine.data.random_streams import Streams
from damper.losses.l2c2 import neighbour
from damper.losses.l2c2_released import l2c2_released_actor, log_prob
from tests.losses.helpers import (
    BATCH,
    OBS,
    SEEDS,
    LinearPolicy,
    actor_loss,
    critic_loss,
    draws,
    numpy_actor,
    population,
    single_batch,
    stacked_batch,
)


def test_log_prob_is_the_squashed_gaussians():
    torch.manual_seed(0)
    mean, log_std, epsilon = torch.randn(3, 50, 2, dtype=torch.float64)
    ours = log_prob((mean, 0.3 * log_std), epsilon)
    theirs = Independent(
        TransformedDistribution(Normal(mean, (0.3 * log_std).exp()), TanhTransform(cache_size=1)), 1
    )
    moderate = (mean + (0.3 * log_std).exp() * epsilon).abs().amax(
        -1
    ) < 3  # where SB3's 1e-6 does not matter
    expected = theirs.log_prob(torch.tanh(mean + (0.3 * log_std).exp() * epsilon))
    torch.testing.assert_close(ours[moderate], expected[moderate], rtol=0, atol=1e-3)
    assert moderate.sum() > 25


def test_sac_networks():
    agents, streams = population("l2c2-released", "sac"), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 0), draws(agents, streams, 0)
    losses = actor_loss(agents, agents.state()["actor"], batch, noise)
    for j in range(len(SEEDS)):
        forward = numpy_actor(agents, j)
        s, step, uniform = (
            x[j].numpy() for x in (batch.obs, batch.next_obs - batch.obs, noise["l2c2"])
        )
        near = s + uniform * step
        d = np.abs((near - s) / (step + 1e-8)).max(-1) + 0.01 / 0.99

        def log_density(heads, epsilon):
            action = np.tanh(heads["mu"] + np.exp(heads["log_std"]) * epsilon)
            gaussian = -0.5 * epsilon**2 - heads["log_std"] - 0.5 * np.log(2 * np.pi)
            return np.sum(gaussian - np.log(1 - action**2 + 1e-6), -1)

        overlap = np.mean(
            [
                np.exp(0.5 * np.clip(
                    log_density(forward(near), noise[f"l2c2_there_{k}"][j].numpy())
                    - log_density(forward(s), noise[f"l2c2_here_{k}"][j].numpy()), -10, 10,
                ))
                for k in range(4)
            ],
            axis=0,
        )  # fmt: skip
        assert losses[j].item() == pytest.approx(
            np.mean(0.01 / 0.99 / d * np.maximum(1 - overlap, 0))
        )


def test_the_ratio_is_clamped():
    policy, batch = LinearPolicy(stochastic=True), single_batch()
    noise = {"l2c2": torch.ones(BATCH, OBS).double()}
    noise |= {
        f"l2c2_{where}_{k}": torch.zeros(BATCH, 2).double()
        for where in ("here", "there")
        for k in range(4)
    }
    with torch.no_grad():
        policy.K.zero_()
        policy.C.fill_(100.0)
    batch = batch._replace(obs=torch.zeros_like(batch.obs), next_obs=torch.ones_like(batch.obs))
    weight = neighbour(batch, noise["l2c2"], 1.0, 0.01, 1.0, released_d=True).weight
    expected = (weight * (1 - np.exp(-5.0))).mean()
    assert l2c2_released_actor(policy, batch, noise).item() == pytest.approx(expected.item())


def test_td3_is_l2c2_with_the_released_distance():
    agents, streams = population("l2c2-released", "td3"), Streams(SEEDS)
    ours = population("l2c2", "td3", released_d=True)
    batch, noise = stacked_batch(streams, 0), draws(agents, streams, 0)
    for loss, name in ((actor_loss, "actor"), (critic_loss, "critic")):
        row = agents.state()[name]
        assert torch.equal(loss(agents, row, batch, noise), loss(ours, row, batch, noise))
    plain = population("l2c2", "td3")
    row = agents.state()["actor"]
    assert not torch.equal(
        actor_loss(agents, row, batch, noise), actor_loss(plain, row, batch, noise)
    )
