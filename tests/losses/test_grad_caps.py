from __future__ import annotations

import numpy as np
import pytest
import torch

from damper.engine.data.random_streams import Streams
from damper.losses.grad_caps import grad_caps
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

FORMS = {
    "released": lambda displacement: np.tanh(1 / (displacement + 1e-4) ** 2),
    "paper": lambda displacement: 1 / (np.tanh(np.abs(displacement)) + 1e-4),
}


def reference(before, mu, after, form="released"):
    return np.mean(0.5 * (2 * mu - after - before) ** 2 * FORMS[form](after - before))


def test_by_hand():
    rows = {"previous_obs": 0.0, "obs": 3.0, "next_obs": 2.0}
    batch = single_batch()._replace(
        **{name: torch.tensor([[value]], dtype=torch.float64) for name, value in rows.items()}
    )
    # Second difference 2·3 − 2 − 0 = 4, displacement 2.
    released = grad_caps(lambda obs: obs, batch, {}, lambda_T=0.5)
    assert released.item() == pytest.approx(0.5 * 0.5 * 16 * np.tanh(1 / 2.0001**2))
    paper = grad_caps(lambda obs: obs, batch, {}, lambda_T=0.5, form="paper")
    assert paper.item() == pytest.approx(0.5 * 0.5 * 16 / (np.tanh(2.0) + 1e-4))


@pytest.mark.parametrize("form", FORMS)
def test_linear_policy_and_the_weight_gets_no_gradient(form):
    policy, batch = LinearPolicy(), single_batch()
    loss = grad_caps(policy, batch, {}, lambda_T=0.7, form=form)
    before, s, s_next = arrays(batch)
    K = policy.K.detach().numpy()
    assert loss.item() == pytest.approx(0.7 * reference(before @ K, s @ K, s_next @ K, form))
    # With h held, ½ h (xK)² has the slope xᵀ(h · xK); with h's own slope it would have another.
    x, h = 2 * s - s_next - before, FORMS[form]((s_next - before) @ K)
    expected = 0.7 * x.T @ (h * (x @ K)) / h.size
    np.testing.assert_allclose(torch.autograd.grad(loss, policy.K)[0].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_networks(backbone):
    agents, streams = population("grad-caps", backbone), Streams(SEEDS)
    batch = stacked_batch(streams, 0)
    losses = actor_loss(agents, agents.state()["actor"], batch, draws(agents, streams, 0))
    for j in range(len(SEEDS)):
        states = (batch.previous_obs, batch.obs, batch.next_obs)
        mu = [np.tanh(numpy_actor(agents, j)(obs[j].numpy())["mu"]) for obs in states]
        assert losses[j].item() == pytest.approx(reference(*mu))


@pytest.mark.parametrize("form", FORMS)
def test_a_straight_line_costs_nothing_and_standing_still_is_safe(form):
    policy, batch = LinearPolicy(), single_batch()
    line = batch._replace(next_obs=2 * batch.obs - batch.previous_obs)
    assert grad_caps(policy, line, {}, form=form).item() == pytest.approx(0, abs=1e-25)
    still = batch._replace(next_obs=batch.previous_obs)
    assert (
        torch.autograd.grad(grad_caps(policy, still, {}, form=form), policy.K)[0].isfinite().all()
    )
    # A displacement of exactly −1e-4 makes the released δ zero, whose weight is tanh(∞) = 1.
    zero = batch._replace(
        previous_obs=torch.full((1, 1), 1e-4), next_obs=torch.zeros(1, 1), obs=torch.ones(1, 1)
    )
    assert grad_caps(lambda obs: obs, zero, {}, form="released").item() == pytest.approx(
        0.5 * (2 - 1e-4) ** 2, rel=1e-6
    )
