from __future__ import annotations

import numpy as np
import pytest
import torch

from damper.engine.data.random_streams import Streams
from damper.interface import AVERAGE_RATE
from damper.losses.asap import asap
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
    train,
)
from tests.losses.test_grad_caps import reference as zigzag

WEIGHTS = {"lambda_S": 0.9, "lambda_P": 1.7, "lambda_T": 0.4}


def reference(before, mu, after, prediction, averaged, lambda_S, lambda_P, lambda_T):
    alignment, predicting = (
        0.5 * np.mean((after - averaged) ** 2),
        0.5 * np.mean((prediction - after) ** 2),
    )
    return lambda_S * alignment + lambda_P * predicting + lambda_T * zigzag(before, mu, after)


@pytest.mark.parametrize(("stochastic", "squash"), [(False, False), (True, False), (True, True)])
def test_linear_policy(stochastic, squash):
    policy, batch = LinearPolicy(stochastic), single_batch()
    K, H, A = (matrix.detach().numpy() for matrix in (policy.K, policy.H, policy.A))
    before, s, s_next = arrays(batch)
    heads = [s @ H, s @ A]
    if squash or not stochastic:
        heads = [np.tanh(head) for head in heads]
    loss = asap(policy, batch, {}, **WEIGHTS, squash=squash)
    assert loss.item() == pytest.approx(reference(before @ K, s @ K, s_next @ K, *heads, **WEIGHTS))


def test_gradients_go_where_they_should():
    policy, batch = LinearPolicy(stochastic=True), single_batch()
    loss = asap(policy, batch, {}, **WEIGHTS)
    gradients = torch.autograd.grad(loss, (policy.K, policy.H, policy.A), allow_unused=True)
    K, H, A = (matrix.detach().numpy() for matrix in (policy.K, policy.H, policy.A))
    _, s, s_next = arrays(batch)
    size = (s @ K).size
    # The actor follows the averaged prediction (and Grad-CAPS), the head follows the actor, the
    # average follows none.
    follows = torch.autograd.grad(
        grad_caps(policy, batch, {}, lambda_T=WEIGHTS["lambda_T"]), policy.K
    )[0].numpy()
    follows = follows + WEIGHTS["lambda_S"] * s_next.T @ (s_next @ K - s @ A) / size
    np.testing.assert_allclose(gradients[0].numpy(), follows, rtol=1e-12)
    np.testing.assert_allclose(
        gradients[1].numpy(), WEIGHTS["lambda_P"] * s.T @ (s @ H - s_next @ K) / size, rtol=1e-12
    )
    assert gradients[2] is None


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_networks(backbone):
    agents, streams = population("asap", backbone), Streams(SEEDS)
    batch = stacked_batch(streams, 0)
    row = agents.state()["actor"]
    losses = actor_loss(agents, row, batch, draws(agents, streams, 0))
    squash = np.tanh if backbone == "td3" else lambda raw: raw
    for j in range(len(SEEDS)):
        forward = numpy_actor(agents, j)
        states = (batch.previous_obs[j], batch.obs[j], batch.next_obs[j])
        mu = [np.tanh(forward(obs.numpy())["mu"]) for obs in states]
        head = squash(
            forward(batch.obs[j].numpy())["prediction"]
        )  # the average still equals the actor
        assert losses[j].item() == pytest.approx(reference(*mu, head, head, 0.3, 2.0, 0.05))


def test_the_prediction_trains_head_and_trunk_but_not_the_action_head():
    agents, streams = population("asap", "sac", lambda_S=0.0, lambda_T=0.0), Streams(SEEDS)
    row = agents.state()["actor"].clone().requires_grad_()
    loss = actor_loss(agents, row, stacked_batch(streams, 0), draws(agents, streams, 0))
    layers = agents.networks.actor_layout.unflatten(torch.autograd.grad(loss.sum(), row)[0])
    touched = {
        name for name, layer in layers.items() if any(bool(tensor.any()) for tensor in layer)
    }
    assert touched == {"trunk.0", "trunk.1", "prediction"}


def test_the_average_moves_at_every_update_also_td3s_critic_only_ones():
    agents = train(population("asap", "td3"), updates=2)
    actor, average = agents.state()["actor"].clone(), agents.state()["actor_average"].clone()
    streams = Streams(SEEDS)
    agents.update_on(stacked_batch(streams, 2), draws(agents, streams, 2), with_actor=False)
    torch.testing.assert_close(agents.state()["actor"], actor, rtol=0, atol=0)
    torch.testing.assert_close(
        agents.state()["actor_average"], (1 - AVERAGE_RATE) * average + AVERAGE_RATE * actor
    )
    assert AVERAGE_RATE == 0.01
    assert not torch.equal(agents.state()["actor_average"], average)
