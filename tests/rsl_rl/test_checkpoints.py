"""Checkpoints of rsl_rl's runner hold what trained the weights, and pass between the classes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("rsl_rl")
from damper.rules import state_tensors
from tests.rsl_rl.pendulums import train, weights

PLAIN = {"class_name": "PPO"}


def saved(path: Path, **settings: Any) -> Any:
    """A runner after two iterations, saved at ``path``."""
    runner = train(2, **settings)
    runner.logger.save_model = lambda *_: None
    runner.save(str(path))
    return runner


@pytest.mark.parametrize("method", ["damper", "bloop", "metabalance"])
def test_checkpoints_go_on(method: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    runner = saved(path, method=method)
    checkpoint = torch.load(path, weights_only=True)["damper"]
    settings = runner.alg.method_settings
    trained_with = [{"method": method, "settings": settings, "iterations": 2}]
    assert checkpoint["trained_with"] == trained_with
    again = train(1, method=method)
    again.load(str(path))
    assert torch.equal(weights(again), weights(runner))
    memories = [state_tensors(alg._rule_state) for alg in (again.alg, runner.alg)]
    assert all(map(torch.equal, *memories))
    expected = {"damper": 0, "bloop": 1, "metabalance": 2}[method]
    assert len(checkpoint["memory"]) == len(memories[0]) == expected
    again.learn(1)
    assert again.alg.trained_with == [{**trained_with[0], "iterations": 3}]


def test_another_eta_is_reported_and_recorded(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    saved(path, eta=0.5)
    runner = train(0, eta=0.0)
    sentence = r"trained with method 'damper' \(eta=0.5.*; training goes on with .*eta=0.0"
    with pytest.warns(UserWarning, match=sentence):
        runner.load(str(path))
    assert runner.alg.training_record()["settings"]["eta"] == 0.5
    runner.learn(1)
    record = runner.alg.training_record()
    assert record["settings"]["eta"] == 0.0
    stretches = [(one["settings"]["eta"], one["iterations"]) for one in record["trained_with"]]
    assert stretches == [(0.5, 2), (0.0, 1)]
    runner.logger.save_model = lambda *_: None
    runner.save(str(path))
    with warnings.catch_warnings(action="error"):
        again = train(0, eta=0.0)
        again.load(str(path))
    assert again.alg.training_record() == record


@pytest.mark.parametrize(
    ("trained", "loading", "recorded"),
    [(PLAIN, {}, "plain"), ({"eta": 0.5}, {"method": "plain"}, "damper")],
    ids=["stock into damper", "damper into plain"],
)
def test_contracts_say_what_trained_the_weights(
    trained: dict[str, Any], loading: dict[str, Any], recorded: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    from damper.export import export

    path = tmp_path / "model.pt"
    original = saved(path, **trained)
    runner = train(0, **loading)
    with pytest.warns(UserWarning, match=f"trained with method '{recorded}'"):
        runner.load(str(path))
    assert torch.equal(weights(runner), weights(original))
    training = export(runner, tmp_path / "policy.onnx")["training"]
    assert training["method"] == recorded
    assert training["settings"].get("eta") == trained.get("eta")


def test_rsl_rl_s_own_class_does_not_know_what_trained_its_weights(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from damper.export import export

    path = tmp_path / "model.pt"
    original = saved(path)
    runner = train(1, **PLAIN)
    runner.load(str(path))
    assert torch.equal(weights(runner), weights(original))
    assert export(runner, tmp_path / "policy.onnx")["training"]["method"] is None


def test_a_critic_alone_does_not_change_what_trained_the_actor(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    saved(path, eta=0.5)
    runner = train(1, eta=0.0)
    before = [dict(entry) for entry in runner.alg.trained_with]
    runner.load(str(path), load_cfg={"critic": True})
    assert runner.alg.trained_with == before


def test_the_memory_of_another_rule_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    saved(path, method="bloop")
    runner = train(0, method="metabalance")
    with pytest.warns(UserWarning, match="'bloop'.* goes on with method 'metabalance'"):
        runner.load(str(path))
    assert runner.alg._rule_state is None
    runner.learn(1)
    fresh = train(1, method="metabalance")
    kinds = [type(one.alg._rule_state) for one in (runner, fresh)]
    assert kinds[0] is kinds[1]
