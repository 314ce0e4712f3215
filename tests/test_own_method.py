"""A method defined outside the package: one loss, one registry line, and everything takes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import damper
from damper.interface import Batch, Loss, NoiseDraws, Policy
from tests import tiny


def quiet(policy: Policy, batch: Batch, noise: NoiseDraws, *, strength: float | Tensor = 0.1) -> Tensor:
    """``strength · mean ‖μ(s)‖²``: a policy that should do little."""
    return strength * policy(batch.obs).square().sum(-1).mean(-1)


@pytest.fixture
def toy():
    damper.METHODS["quiet"] = damper.Method("quiet", actor=Loss(quiet))
    yield damper.METHODS["quiet"]
    del damper.METHODS["quiet"]


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_it_trains_as_a_population_and_does_what_it_says(toy, backbone, tmp_path):
    run = tiny.train(tmp_path / "run", "quiet", backbone, steps=500, seeds=(0,), strength=[0.0, 100.0])
    assert [agent["strength"] for agent in run.agents] == [0.0, 100.0]
    obs = torch.randn(64, 3, generator=torch.Generator().manual_seed(0)).numpy()
    loud, silent = (abs(run.policy(agent)(obs)).mean() for agent in (0, 1))
    assert silent < 0.5 * loud


def test_any_rule_steers_it(toy, tmp_path):
    run = tiny.train(tmp_path / "run", "damper+quiet", seeds=(0,), steps=200, eta=0.5)
    assert run.manifest["settings"]["method"] == "damper+quiet"
    assert run.manifest["frozen"] == {}
