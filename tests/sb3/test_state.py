"""What a method remembers between updates, beside the same arithmetic done by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from damper.rules import RULES
from damper.sb3 import off_policy
from tests.sb3.models import OURS, make, quiet


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Both gradients and the combined one of every actor update from now on."""
    seen: list[Any] = []
    backward = off_policy.backward

    def watched(primary: Any, auxiliary: Any, parameters: Any, **settings: Any) -> Any:
        g_R, g_T = (
            torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
            for loss in (primary, auxiliary)
        )
        report = backward(primary, auxiliary, parameters, **settings)
        seen.append((g_R, g_T, torch.cat([p.grad.reshape(-1) for p in parameters])))
        return report

    monkeypatch.setattr(off_policy, "backward", watched)
    return seen


@pytest.mark.parametrize("rule", ["bloop", "metabalance"])
def test_a_rule_remembers_from_one_actor_update_to_the_next(rule: str, updates: list[Any]) -> None:
    model = make(OURS["td3"], method=rule).learn(62)
    memory: Any = None
    for g_R, g_T, combined in updates:
        expected, memory = RULES[rule](g_R, g_T, memory)
        torch.testing.assert_close(combined, expected, rtol=1e-4, atol=1e-6 * float(expected.norm()))
    assert len(updates) == 6
    kept = [model.method_state.memory] if isinstance(memory, torch.Tensor) else model.method_state.memory
    for ours, theirs in zip(kept, [memory] if isinstance(memory, torch.Tensor) else memory, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_asap_s_average_moves_once_at_every_update(backbone: str) -> None:
    model = quiet(make(OURS[backbone], method="asap")).learn(52)  # TD3's actor moves at every second update
    state, moved = model.method_state, []

    def weights(*modules: torch.nn.Module) -> torch.Tensor:
        return torch.cat([p.detach().reshape(-1).clone() for module in modules for p in module.parameters()])

    for _ in range(4):
        actor, average = weights(model.actor, state.head), weights(state.average, state.average_head)
        model.train(1, batch_size=8)
        now = weights(model.actor, state.head)
        expected = average + 0.01 * (now - average)
        torch.testing.assert_close(weights(state.average, state.average_head), expected, rtol=1e-5, atol=1e-7)
        moved.append(not torch.equal(now, actor))
    assert sum(moved) == (2 if backbone == "td3" else 4)


def test_the_log_holds_rates_since_the_last_dump(updates: list[Any]) -> None:
    model = quiet(make(OURS["td3"], train_freq=4, gradient_steps=4)).learn(160)
    cosines = np.array([float(torch.cosine_similarity(g_R, g_T, dim=0)) for g_R, g_T, _ in updates])
    assert len(cosines) > 50 and 0.0 < (cosines < 0).mean() < 1.0
    values = model.logger.name_to_value  # means over calls of train, of two actor updates each
    assert values["train/cosine"] == pytest.approx(cosines.mean(), rel=1e-4, abs=1e-6)
    assert values["train/conflict_rate"] == pytest.approx((cosines < 0).mean())
    assert model.logger.name_to_count["train/conflict_rate"] == len(cosines) / 2
