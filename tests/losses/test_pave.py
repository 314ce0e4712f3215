from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from damper.engine.data.random_streams import Streams
from damper.losses.pave import curvature, pave
from tests.losses.helpers import (
    ACT,
    BATCH,
    OBS,
    SEEDS,
    QuadraticCritic,
    critic_loss,
    draws,
    population,
    single_batch,
    stacked_batch,
)

WEIGHTS = {"lambda_1": 0.7, "lambda_2": 0.3, "lambda_3": 0.2, "sigma": 0.5, "delta": 1.0}


def single_noise(seed=3):
    g = torch.Generator().manual_seed(seed)
    v = torch.randint(0, 2, (BATCH, ACT), generator=g).double() * 2 - 1
    return {"pave_state": torch.randn(BATCH, OBS, generator=g).double(), "pave_direction": v}


def one_critic(agents, j, twin):
    """Agent j's critic written as a function of one state and one action."""
    rows = agents.state()["critic"].reshape(len(SEEDS), 2, -1)[j, twin].clone().requires_grad_()
    layers = list(agents.networks.critic_layout.unflatten(rows.unsqueeze(0)).values())

    def q(s, a):
        x = torch.cat((s, a))
        for weight, bias in layers[:-1]:
            x = F.silu(x @ weight[0] + bias[0, 0])
        return (x @ layers[-1][0][0] + layers[-1][1][0, 0]).squeeze()

    return rows, q


def reference(q, batch, noise, j, weights):
    """PAVE's loss for one critic of agent j, sample by sample, with the full Hessian."""
    MPR, VFC, Curv = [], [], []
    for s, s_next, a, epsilon, v in zip(
        batch.obs[j],
        batch.next_obs[j],
        batch.action[j],
        noise["pave_state"][j],
        noise["pave_direction"][j],
        strict=True,
    ):
        slope = [torch.autograd.functional.jacobian(lambda x, at=at: q(at, x), a, create_graph=True)
                 for at in (s, s + weights["sigma"] * epsilon, s_next)]  # fmt: skip
        H = torch.autograd.functional.hessian(lambda x, at=s: q(at, x), a, create_graph=True)
        MPR.append((slope[1] - slope[0]).square().mean())
        VFC.append((slope[2] - slope[0]).square().mean())
        Curv.append(torch.relu(v @ H @ v + weights["delta"]))
    terms = (torch.stack(term).mean() for term in (MPR, VFC, Curv))
    return sum(weights[f"lambda_{i}"] * term for i, term in enumerate(terms, 1))


def test_quadratic_critics():
    critic, batch, noise = QuadraticCritic(), single_batch(), single_noise()
    loss = pave(critic, None, batch, noise, **WEIGHTS)
    M, N = critic.M.detach().numpy(), critic.N.detach().numpy()
    epsilon, v = noise["pave_state"].numpy(), noise["pave_direction"].numpy()
    step = (batch.next_obs - batch.obs).numpy()
    # ∇ₐQ = M a + N s + const, so the differences are N's images and the Hessian is M.
    MPR, VFC = (sum(np.mean((x @ N[j].T) ** 2) for j in (0, 1)) for x in (0.5 * epsilon, step))
    Curv = sum(np.mean(np.maximum(np.sum(v @ M[j] * v, -1) + 1.0, 0)) for j in (0, 1))
    assert loss.item() == pytest.approx(0.7 * MPR + 0.3 * VFC + 0.2 * Curv)


def test_curvature_is_the_hessians():
    agents, streams = population("pave", "td3"), Streams(SEEDS)
    batch, v = stacked_batch(streams, 0), draws(agents, streams, 0)["pave_direction"]
    a, twin_v = (x.unsqueeze(1).expand(-1, 2, -1, -1) for x in (batch.action, v))
    bend, gradient = curvature(agents.networks.critic(), batch.obs, a, twin_v)
    for j in range(len(SEEDS)):
        for twin in (0, 1):
            _, q = one_critic(agents, j, twin)
            for i in range(BATCH):
                H = torch.autograd.functional.hessian(
                    lambda x, at=batch.obs[j, i], q=q: q(at, x), batch.action[j, i]
                )
                torch.testing.assert_close(
                    bend[j, twin, i], v[j, i] @ H @ v[j, i], rtol=1e-10, atol=1e-14
                )
    assert gradient.shape == (len(SEEDS), 2, BATCH, ACT)


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_each_agent_and_each_critic_gets_exactly_its_own_gradient(backbone):
    agents, streams = population("pave", backbone, **WEIGHTS), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 0), draws(agents, streams, 0)
    flat = agents.state()["critic"].clone().requires_grad_()
    losses = critic_loss(agents, flat, batch, noise)
    gradient = torch.autograd.grad(losses.sum(), flat)[0].reshape(len(SEEDS), 2, -1)
    for j in range(len(SEEDS)):
        alone = 0.0
        for twin in (0, 1):
            rows, q = one_critic(agents, j, twin)
            loss = reference(q, batch, noise, j, WEIGHTS)
            expected = torch.autograd.grad(loss, rows)[0]
            assert (gradient[j, twin] - expected).norm() <= 1e-12 * expected.norm()
            alone += loss.item()
        assert losses[j].item() == pytest.approx(alone, rel=1e-12)


def test_torch_func_outside_gives_the_same_gradient():
    agents, streams = population("pave", "td3", **WEIGHTS), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 0), draws(agents, streams, 0)
    flat = agents.state()["critic"].clone().requires_grad_()
    expected = torch.autograd.grad(critic_loss(agents, flat, batch, noise).sum(), flat)[0]
    ours = torch.func.grad(lambda rows: critic_loss(agents, rows, batch, noise).sum())(
        flat.detach()
    )
    assert (ours - expected).norm() <= 1e-13 * expected.norm()


def test_a_concave_enough_critic_pays_nothing_for_curvature():
    critic, batch, noise = QuadraticCritic(), single_batch(), single_noise()
    only_curvature = {**WEIGHTS, "lambda_1": 0.0, "lambda_2": 0.0}
    with torch.no_grad():
        critic.M.copy_(-10 * torch.eye(ACT).expand(2, ACT, ACT))
    assert pave(critic, None, batch, noise, **only_curvature).item() == 0
    # vᵀMv = −20 for every ±1 direction in two dimensions.
    raised = pave(critic, None, batch, noise, **{**only_curvature, "delta": 25.0})
    assert raised.item() == pytest.approx(0.2 * 2 * 5)


@pytest.mark.slow
def test_it_compiles_whole():
    agents, streams = population("pave", "td3", **WEIGHTS), Streams(SEEDS)
    batch, noise = stacked_batch(streams, 0), draws(agents, streams, 0)
    gradient = torch.func.grad(lambda rows: critic_loss(agents, rows, batch, noise).sum())
    expected = gradient(agents.state()["critic"])
    ours = torch.compile(gradient, fullgraph=True)(agents.state()["critic"])
    assert (ours - expected).norm() <= 1e-13 * expected.norm()
