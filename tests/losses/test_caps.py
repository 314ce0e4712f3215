from __future__ import annotations

import numpy as np
import pytest
import torch

from damper.engine.data.random_streams import Streams
from damper.losses.caps import caps
from tests.losses.helpers import (
    SEEDS,
    LinearPolicy,
    actor_loss,
    arrays,
    draws,
    numpy_actor,
    population,
    single_batch,
    stacked_batch,
)


def reference(mu, mu_next, mu_noisy, lambda_T, lambda_S):
    return lambda_T * 0.5 * np.mean((mu - mu_next) ** 2) + lambda_S * 0.5 * np.mean(
        (mu - mu_noisy) ** 2
    )


def test_by_hand():
    batch = single_batch()._replace(obs=torch.zeros(1, 3), next_obs=torch.tensor([[1.0, 2.0, 0.0]]))
    noise = {"caps": torch.tensor([[3.0, 0.0, 0.0]])}
    loss = caps(lambda obs: obs[..., :2], batch, noise, lambda_T=2.0, lambda_S=4.0, sigma=0.5)
    # Temporal ½ (1² + 2²)/2 = 1.25, spatial ½ (1.5²)/2 = 0.5625.
    assert float(loss) == pytest.approx(2 * 1.25 + 4 * 0.5625)


def test_linear_policy():
    policy, batch, epsilon = LinearPolicy(), single_batch(), single_batch(seed=1).obs
    loss = caps(policy, batch, {"caps": epsilon}, lambda_T=0.7, lambda_S=1.3, sigma=0.2)
    _, s, s_next = arrays(batch)
    K = policy.K.detach().numpy()
    assert loss.item() == pytest.approx(
        reference(s @ K, s_next @ K, (s + 0.2 * epsilon.numpy()) @ K, 0.7, 1.3)
    )
    # ∂/∂K of ½ mse(xK) is xᵀxK over the number of actions in the batch; nothing is detached.
    x, z = s - s_next, 0.2 * epsilon.numpy()
    expected = (0.7 * x.T @ x @ K + 1.3 * z.T @ z @ K) / (s @ K).size
    np.testing.assert_allclose(torch.autograd.grad(loss, policy.K)[0].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_networks(backbone):
    agents, streams = population("caps", backbone), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 0), draws(agents, streams, 0)
    losses = actor_loss(agents, agents.state()["actor"], batch, noise)
    for j in range(len(SEEDS)):
        forward = numpy_actor(agents, j)
        s, s_next, epsilon = (x[j].numpy() for x in (batch.obs, batch.next_obs, noise["caps"]))
        mu = [np.tanh(forward(obs)["mu"]) for obs in (s, s_next, s + 0.2 * epsilon)]
        assert losses[j].item() == pytest.approx(reference(*mu, 0.1, 0.5))
