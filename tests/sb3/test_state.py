"""What a method remembers between updates, beside the same arithmetic done by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from damper.rules import RULES, state_tensors
from damper.sb3.common import off_policy
from tests.sb3.models import NAMES, OURS, THEIRS, make, quiet, weights


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Both gradients and the combined one of every actor update from now on."""
    seen: list[Any] = []
    backward = off_policy.backward

    def watched(primary: Any, auxiliary: Any, parameters: Any, **settings: Any) -> Any:
        g_R, g_T = (
            torch.cat(
                [g.reshape(-1) for g in torch.autograd.grad(loss, parameters, retain_graph=True)]
            )
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
        torch.testing.assert_close(
            combined, expected, rtol=1e-4, atol=1e-6 * float(expected.norm())
        )
    assert len(updates) == 6
    kept = state_tensors(model.method_state.rule_state)
    for ours, theirs in zip(kept, state_tensors(memory), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("rule", ["bloop", "metabalance"])
@pytest.mark.parametrize("name", NAMES)
def test_a_rule_s_memory_moves_is_saved_loaded_and_kept_between_calls_of_learn(
    name: str, rule: str, tmp_path: Path
) -> None:
    def memory(model: Any) -> torch.Tensor:
        return torch.cat([x.reshape(-1) for x in state_tensors(model.method_state.rule_state)])

    model = make(OURS[name], rule=rule)
    assert not memory(model).any()
    learned = memory(model.learn(70)).clone()
    assert learned.norm() > 0
    model.save(tmp_path / "model")
    again = OURS[name].load(tmp_path / "model", env=model.get_env())
    assert torch.equal(memory(again), learned)
    model._setup_learn(70)  # as the next call of learn does
    assert torch.equal(memory(model), learned)
    for other in (model, again):
        assert not torch.equal(memory(other.learn(70)), learned)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_frozen_between_updates_keep_their_place_in_a_rule_s_memory(name: str) -> None:
    model = make(OURS[name], rule="bloop").learn(70)
    first = next(p for p in model._actor_parameters() if p.ndim == 2)
    before, size = first.detach().clone(), model.method_state.rule_state.numel()
    first.requires_grad_(False)
    moving = weights(model.learn(70))
    assert torch.equal(first, before) and not first.requires_grad
    assert model.method_state.rule_state.numel() == size
    first.requires_grad_(True)
    assert not torch.equal(weights(model.learn(70)), moving) and not torch.equal(first, before)


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_asap_s_average_moves_once_at_every_update(backbone: str) -> None:
    model = quiet(make(OURS[backbone], method="asap")).learn(
        52
    )  # TD3's actor moves at every second update
    state, moved = model.method_state, []

    def weights(*modules: torch.nn.Module) -> torch.Tensor:
        return torch.cat(
            [p.detach().reshape(-1).clone() for module in modules for p in module.parameters()]
        )

    for _ in range(4):
        actor, average = (
            weights(model.actor, state.head),
            weights(state.average, state.average_head),
        )
        model.train(1, batch_size=8)
        now = weights(model.actor, state.head)
        expected = average + 0.01 * (now - average)
        torch.testing.assert_close(
            weights(state.average, state.average_head), expected, rtol=1e-5, atol=1e-7
        )
        moved.append(not torch.equal(now, actor))
    assert sum(moved) == (2 if backbone == "td3" else 4)


def test_the_log_holds_rates_since_the_last_dump(updates: list[Any]) -> None:
    model = quiet(make(OURS["td3"], train_freq=4, gradient_steps=4)).learn(160)
    cosines = np.array([float(torch.cosine_similarity(g_R, g_T, dim=0)) for g_R, g_T, _ in updates])
    assert len(cosines) > 50 and 0.0 < (cosines < 0).mean() < 1.0
    values = model.logger.name_to_value  # means over calls of train, of two actor updates each
    assert values["train/cosine"] == pytest.approx(cosines.mean(), rel=1e-4, abs=1e-6)
    assert values["train/conflict"] == pytest.approx((cosines < 0).mean())
    for name in ("conflict", "auxiliary_loss"):
        assert model.logger.name_to_count[f"train/{name}"] == len(cosines) / 2


METHODS = [{"method": "plain"}, {"rule": "bloop"}, {"rule": "metabalance"}, {"method": "asap"}]


@pytest.mark.parametrize("before", [None, *METHODS], ids=str)
def test_a_model_goes_on_with_another_method(before: dict[str, Any] | None, tmp_path: Path) -> None:
    """The policy and its optimizer come along; what a method remembers starts anew."""
    first = make(THEIRS["sac"] if before is None else OURS["sac"], **(before or {})).learn(60)
    first.save(tmp_path / "first")
    for after in METHODS:
        model = OURS["sac"].load(
            tmp_path / "first", env=first.get_env(), **{"method": "damper", **after}
        )
        assert torch.equal(weights(model), weights(first))
        saved, now = (one.actor.optimizer.state_dict()["state"] for one in (first, model))
        assert all(
            torch.equal(saved[i]["exp_avg"], now[i]["exp_avg"])
            for i in range(len(list(model.actor.parameters())))
        )
        if after == {"method": "asap"} != before:
            average = torch.cat([p.reshape(-1) for p in model.method_state.average.parameters()])
            assert torch.equal(
                average, torch.cat([p.detach().reshape(-1) for p in model.actor.parameters()])
            )
        model.learn(20, reset_num_timesteps=False)
        model.save(tmp_path / "second")
        again = OURS["sac"].load(tmp_path / "second")
        kept, loaded = model.method_state.state_dict(), again.method_state.state_dict()
        assert kept.keys() == loaded.keys() and all(
            torch.equal(kept[name], loaded[name]) for name in kept
        )


def test_ppo_goes_on_with_another_method(tmp_path: Path) -> None:
    for before, after in (
        ({"method": "plain"}, {"rule": "bloop"}),
        ({"rule": "bloop"}, {"method": "plain"}),
    ):
        first = make(OURS["ppo"], **before).learn(50)
        first.save(tmp_path / "model")
        model = OURS["ppo"].load(
            tmp_path / "model", env=first.get_env(), **{"method": "damper", **after}
        )
        assert torch.equal(weights(model), weights(first))
        model.learn(50)


def test_parameters_that_do_not_match_are_refused_as_in_sb3(tmp_path: Path) -> None:
    model, other = (
        make(OURS["td3"], method="asap", policy_kwargs={"net_arch": [size]}) for size in (8, 16)
    )
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.set_parameters(other.get_parameters())
    model.save(tmp_path / "model")
    model = OURS["td3"].load(tmp_path / "model")
    params = model.get_parameters()
    head = params["method_state"].pop("head.weight")
    with pytest.raises(RuntimeError, match="Missing key"):
        model.set_parameters(params)
    model.set_parameters(
        {"method_state": {"head.weight": torch.zeros_like(head)}}, exact_match=False
    )
    assert not model.method_state.head.weight.any()
    del params["method_state"]
    with pytest.raises(ValueError, match="do not match"):
        model.set_parameters(params)


def test_a_trained_sac_can_be_copied() -> None:
    """As SB3's can: no graph of the last update stays behind."""
    model = make(OURS["sac"]).learn(60)
    other = copy.deepcopy(model)
    assert torch.equal(weights(other), weights(model))
    other.learn(20, reset_num_timesteps=False)
    assert not torch.equal(weights(other), weights(model))
