"""Adam on stacked rows equals PyTorch's, one optimiser per agent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from damper.engine.update.optimiser import Adam

P, N = 3, 40
RATES = torch.tensor([1e-3, 3e-4, 0.1], dtype=torch.float64)
ALL = torch.ones(P, dtype=torch.bool)


def gradients(dtype: torch.dtype, steps: int = 50) -> Tensor:
    """Of very different sizes, some entries always zero."""
    draws = torch.randn(
        steps, P, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    scales = 10.0 ** torch.linspace(-6, 3, N, dtype=torch.float64)
    scales[:3] = 0.0
    return (draws * scales).to(dtype)


both_forms = pytest.mark.parametrize(
    "agent_by_agent", [True, False], ids=["agent by agent", "at once"]
)


@both_forms
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_adam_equals_torch(dtype: torch.dtype, tolerance: float, agent_by_agent: bool) -> None:
    ours = torch.randn(P, N, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(
        dtype
    )
    start = ours.clone()
    theirs = [row.clone().requires_grad_() for row in ours]
    references = [
        torch.optim.Adam([row], lr=float(rate)) for row, rate in zip(theirs, RATES, strict=True)
    ]
    adam = Adam.like(ours, agent_by_agent)
    for gradient in gradients(dtype):
        adam.step(ours, gradient, RATES.to(dtype), ALL)
        for row, own, reference in zip(theirs, gradient, references, strict=True):
            row.grad = own.clone()
            reference.step()
    for j, (row, reference) in enumerate(zip(theirs, references, strict=True)):
        state = reference.state[row]
        for a, b in (
            (ours[j], row.detach()),
            (adam.m[j], state["exp_avg"]),
            (adam.v[j], state["exp_avg_sq"]),
        ):
            assert (a - b).norm() <= tolerance * b.norm()
        assert (ours[j] - start[j]).norm() > 0
    assert adam.t == 50


@both_forms
def test_a_row_that_is_not_kept_stays_and_disturbs_no_other(agent_by_agent: bool) -> None:
    start = torch.randn(P, N, generator=torch.Generator().manual_seed(1))
    kept = torch.tensor([True, False, True])
    clean, spoiled = start.clone(), start.clone()
    ours, theirs = Adam.like(clean, agent_by_agent), Adam.like(spoiled, agent_by_agent)
    for k, gradient in enumerate(gradients(torch.float32, 10)):
        bad = gradient.clone()
        if k >= 5:
            bad[1] = float("nan") if k % 2 else float("inf")
        ours.step(clean, gradient, RATES.float(), ALL)
        before = [tensor[1].clone() for tensor in (spoiled, theirs.m, theirs.v)]
        theirs.step(spoiled, bad, RATES.float(), kept if k >= 5 else ALL)
        if k >= 5:
            after = [tensor[1] for tensor in (spoiled, theirs.m, theirs.v)]
            assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    for j in (0, 2):
        assert torch.equal(clean[j], spoiled[j]) and torch.equal(ours.m[j], theirs.m[j])
    assert spoiled.isfinite().all()


def test_the_decays_are_powers() -> None:
    adam, row = Adam.like(torch.zeros(1, 1)), torch.zeros(1, 1)
    for step in range(1, 20_001):
        adam.step(row, torch.ones(1, 1), torch.zeros(1), torch.ones(1, dtype=torch.bool))
        if step in (1, 100, 5_000, 20_000):
            assert adam.decay_m.item() == pytest.approx(0.9**step, rel=1e-10, abs=1e-300)
            assert adam.decay_v.item() == pytest.approx(0.999**step, rel=1e-10)


def test_its_state_is_all_that_a_step_changes() -> None:
    adam, row = Adam.like(torch.zeros(1, 2)), torch.zeros(1, 2)
    before = {
        name: tensor.clone() for name, tensor in vars(adam).items() if isinstance(tensor, Tensor)
    }
    adam.step(row, torch.ones(1, 2), torch.ones(1), torch.ones(1, dtype=torch.bool))
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, vars(adam)[name])}
    assert changed == set(adam.state()) and all(
        adam.state()[name] is vars(adam)[name] for name in changed
    )
