from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from damper.engine.data.random_streams import Streams
from damper.errors import DamperError
from damper.losses.l2c2 import hellinger, l2c2_actor, l2c2_critic, neighbour
from damper.methods import METHODS
from tests.losses.helpers import (
    BATCH,
    OBS,
    SEEDS,
    LinearPolicy,
    QuadraticCritic,
    actor_loss,
    draws,
    numpy_actor,
    population,
    single_batch,
    stacked_batch,
)

BOUNDS = {"sigma": 0.8, "lambda_low": 0.05, "lambda_high": 2.0}


def uniform_draw():
    return (
        torch.rand(BATCH, OBS, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 2
        - 1
    )


def weights(uniform, sigma, lambda_low, lambda_high):
    """``u``, ``d`` and ``λ_π`` written out."""
    epsilon = sigma * lambda_low / (lambda_high - sigma * lambda_low)
    u = (sigma + (sigma - 1) * epsilon) * uniform
    d = np.abs(u).max(-1) + epsilon
    return u, d, epsilon * lambda_high / d


def bhattacharyya(m, log_std, m_q, log_std_q):
    """The textbook form with variances."""
    v, v_q = np.exp(2 * log_std), np.exp(2 * log_std_q)
    distance = 0.25 * (m - m_q) ** 2 / (v + v_q) + 0.5 * np.log((v + v_q) / (2 * np.sqrt(v * v_q)))
    return np.exp(-distance.sum(-1))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_the_weight_runs_from_high_at_the_state_to_low_at_the_rim(sigma):
    batch = single_batch()
    at_state = neighbour(
        batch, torch.zeros(BATCH, OBS).double(), sigma, 0.05, 2.0, released_d=False
    )
    torch.testing.assert_close(
        at_state.weight, torch.full((BATCH,), 2.0, dtype=torch.float64), rtol=1e-14, atol=0
    )
    torch.testing.assert_close(at_state.obs, batch.obs, rtol=0, atol=0)
    rim = torch.tensor([0.3, -1.0, 0.1], dtype=torch.float64).expand(BATCH, OBS)
    at_rim = neighbour(batch, rim, sigma, 0.05, 2.0, released_d=False)
    torch.testing.assert_close(
        at_rim.weight, torch.full((BATCH,), 0.05, dtype=torch.float64), rtol=1e-14, atol=0
    )
    # ‖u‖_∞ + ε there is σ(1 + ε).
    epsilon = sigma * 0.05 / (2.0 - sigma * 0.05)
    torch.testing.assert_close(
        at_rim.d, torch.full((BATCH,), sigma * (1 + epsilon), dtype=torch.float64)
    )


def test_the_released_distance_is_blind_where_nothing_moved():
    batch = single_batch()
    next_obs = batch.obs + torch.tensor([0.5, -0.2, 0.0], dtype=torch.float64)
    uniform = torch.tensor([0.3, -0.4, 0.9], dtype=torch.float64).expand(BATCH, OBS)
    ours, released = (
        neighbour(batch._replace(next_obs=next_obs), uniform, 1.0, 0.01, 1.0, released_d=flag).d
        - 0.01 / 0.99
        for flag in (False, True)
    )
    torch.testing.assert_close(ours, torch.full((BATCH,), 0.9, dtype=torch.float64))
    torch.testing.assert_close(
        released, torch.full((BATCH,), 0.4, dtype=torch.float64), rtol=1e-6, atol=0
    )


def test_deterministic_linear_policy():
    policy, batch, uniform = LinearPolicy(), single_batch(), uniform_draw()
    u, _, weight = weights(uniform.numpy(), **BOUNDS)
    step = (batch.next_obs - batch.obs).numpy()
    distance = np.linalg.norm((u * step) @ policy.K.detach().numpy(), axis=-1)
    loss = l2c2_actor(policy, batch, {"l2c2": uniform}, **BOUNDS)
    assert loss.item() == pytest.approx(np.mean(weight * 0.5 * distance))


def test_quadratic_critic():
    critic, batch, uniform = QuadraticCritic(), single_batch(), uniform_draw()
    u, d, weight = weights(uniform.numpy(), **BOUNDS)
    M, N, n = (x.detach().numpy() for x in (critic.M, critic.N, critic.n))
    a, s = batch.action.numpy(), batch.obs.numpy()

    def smallest(obs):
        values = [
            0.5 * np.sum(a @ M[j] * a, -1) + np.sum(a @ N[j] * obs, -1) + obs @ n[j] for j in (0, 1)
        ]
        return np.minimum(*values)

    gap = np.abs(smallest(s) - smallest(s + u * (batch.next_obs.numpy() - s)))
    loss = l2c2_critic(critic, None, batch, {"l2c2": uniform}, **BOUNDS, beta=0.3)
    assert loss.item() == pytest.approx(np.mean(0.3 * weight / d * 0.5 * gap))


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_networks(backbone):
    agents, streams = population("l2c2", backbone, **BOUNDS), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 0), draws(agents, streams, 0)
    losses = actor_loss(agents, agents.state()["actor"], batch, noise)
    for j in range(len(SEEDS)):
        forward, s = numpy_actor(agents, j), batch.obs[j].numpy()
        u, _, weight = weights(noise["l2c2"][j].numpy(), **BOUNDS)
        here, there = forward(s), forward(s + u * (batch.next_obs[j].numpy() - s))
        if backbone == "td3":
            distance = 0.5 * np.linalg.norm(np.tanh(here["mu"]) - np.tanh(there["mu"]), axis=-1)
        else:
            distance = 1 - bhattacharyya(here["mu"], here["log_std"], there["mu"], there["log_std"])
        assert losses[j].item() == pytest.approx(np.mean(weight * distance))


def test_hellinger_equals_a_monte_carlo_estimate_at_the_same_squashed_actions():
    torch.manual_seed(0)
    p, q = (
        (torch.tensor([[0.2, -0.5]]), torch.tensor([[-0.3, -1.0]])),
        (torch.tensor([[0.7, -0.4]]), torch.tensor([[0.2, -0.7]])),
    )

    def squashed(mean, log_std):
        return Independent(
            TransformedDistribution(
                Normal(mean.double(), log_std.double().exp()), TanhTransform(cache_size=1)
            ),
            1,
        )

    here, there = squashed(*p), squashed(*q)
    actions = here.sample((400_000,))
    ratio = (0.5 * (there.log_prob(actions) - here.log_prob(actions))).exp()
    error = ratio.std() / math.sqrt(len(ratio))
    assert abs(hellinger(p, q).item() - (1 - ratio.mean().item())) < 4 * error
    assert error < 1e-3


def test_hellinger_at_the_ends():
    mean, log_std = torch.randn(4, 2), torch.randn(4, 2).clamp(-2, 2)
    torch.testing.assert_close(
        hellinger((mean, log_std), (mean, log_std)), torch.zeros(4), rtol=0, atol=0
    )
    extreme = torch.full((4, 2), -20.0).requires_grad_()
    far = hellinger((mean, extreme), (mean + 1.0, torch.full((4, 2), 2.0)))
    torch.testing.assert_close(far, torch.ones(4))
    assert torch.autograd.grad(far.sum(), extreme)[0].isfinite().all()


@pytest.mark.parametrize("stochastic", [False, True])
def test_a_state_that_stood_still_gives_no_gradient_and_no_nan(stochastic):
    policy, batch = LinearPolicy(stochastic), single_batch()
    still = batch._replace(next_obs=batch.obs.clone())
    loss = l2c2_actor(policy, still, {"l2c2": uniform_draw()}, **BOUNDS)
    gradients = torch.autograd.grad(
        loss, (policy.K, policy.C), materialize_grads=True, allow_unused=True
    )
    assert all(torch.equal(gradient, torch.zeros_like(gradient)) for gradient in gradients)


def test_bounds_without_room_are_refused():
    for value in (0.01, torch.tensor([1.0, 0.005])):
        with pytest.raises(
            DamperError, match=r"lambda_high must be greater than sigma \* lambda_low"
        ):
            METHODS["l2c2"].route({"lambda_high": value})
