"""Evaluation during training: its numbers are true, the best is kept, training is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

import damper
from damper.engine.loop import trainer as module
from damper.engine.loop.trainer import Trainer
from damper.engine.train import default_folder
from damper.errors import DamperError
from damper.policies.episodes import selection_seeds
from damper.policies.policy import Policy
from damper.protocols import EVALUATION_SEEDS
from tests import tiny
from tests.engine import killed_run, small

EVALUATED: dict[str, Any] = {"steps": 250, "eval_every": 100, "eval_episodes": 2}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent 0 is at its best at step 100, agent 1 at 200; agent 1's first return is not finite."""
    returns = {100: [-1.0, None], 200: [-5.0, 3.0], 250: [-1.0, 2.0]}
    monkeypatch.setattr(
        module, "evaluate_agents", lambda learner: {"return": returns[int(learner.acted[0])]}
    )


def trained(out: Path, *callbacks: Any, **given: Any) -> Trainer:
    trainer = Trainer(small.settings(**{**EVALUATED, **given}), out, callbacks=callbacks)
    trainer.train()
    return trainer


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_it_tells_what_an_evaluation_on_those_seeds_tells(tmp_path: Path, backbone: str) -> None:
    trainer = trained(tmp_path / "run", backbone=backbone)
    lines = trainer.run.evaluations()
    assert [line["step"] for line in lines] == [100, 200, 250], "the last policies too"
    judged = damper.evaluate(trainer.run, seeds=selection_seeds(2)).records()
    for name, told in (("return", "return"), ("sm", "sm"), ("length", "length")):
        means = [
            np.mean([row[told] for row in judged if row["agent"] == agent]) for agent in (0, 1)
        ]
        np.testing.assert_allclose(lines[-1][name], means, rtol=1e-3, atol=1e-5)
    assert not set(selection_seeds(10)) & set(EVALUATION_SEEDS), (
        "what is kept is not judged by what it was chosen by"
    )


def test_training_does_not_notice(tmp_path: Path) -> None:
    one, other = (trained(tmp_path / str(every), eval_every=every) for every in (0, 40))
    assert killed_run.sums(one) == killed_run.sums(other)
    assert one.run.evaluations() == [] and not (one.run.path / "evaluations.jsonl").exists()


@pytest.mark.usefixtures("scripted")
def test_the_best_of_each_agent_is_kept(tmp_path: Path) -> None:
    seen: dict[int, list[Policy]] = {}
    told: dict[int, Any] = {}

    def note(training: damper.Training) -> None:
        seen[training.step], told[training.step] = training.policies(), training.evaluation

    run = trained(tmp_path / "run", note).run
    assert told[50] is None and told[150]["step"] == 100 and told[200]["return"] == [-5.0, 3.0]
    assert run.manifest["best"] == {
        "0": {"step": 100, "return": -1.0},
        "1": {"step": 200, "return": 3.0},
    }
    for agent, step in ((0, 100), (1, 200)):
        kept = run.policy(agent, best=True)
        assert kept.info.steps == step and torch.equal(
            kept.flat_params, seen[step][agent].flat_params
        )
        path = run.path / "policies" / f"best-{agent:04d}.safetensors"
        assert damper.load(path).info == kept.info
        assert run.policy(agent).info.steps == 250
        path.unlink()
        with pytest.raises(
            DamperError,
            match=rf"finds no intact policy in {path.name}: use the version .* or a copy of the "
            r"run, or delete",
        ):
            run.policy(agent, best=True)


@pytest.mark.usefixtures("scripted")
def test_they_survive_a_stop(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole").run
    stopped = trained(
        tmp_path / "run", lambda training: training.step != 150, checkpoint_every=0
    ).run
    assert not stopped.finished and stopped.policy(0, best=True).info.steps == 100
    with pytest.raises(DamperError, match=r"run holds no best policy of agent 1: .* eval_every"):
        stopped.policy(1, best=True)
    again = trained(tmp_path / "run", checkpoint_every=0).run
    assert (
        again.evaluations() == whole.evaluations()
        and again.manifest["best"] == whole.manifest["best"]
    )
    for agent in (0, 1):
        assert torch.equal(
            again.policy(agent, best=True).flat_params, whole.policy(agent, best=True).flat_params
        )


def test_tensorboard_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = pytest.importorskip("torch.utils.tensorboard")
    board = MagicMock()
    monkeypatch.setattr(writers, "SummaryWriter", lambda *_, **__: board)
    given: dict[str, Any] = {"tensorboard": True, "callbacks": lambda training: training.freeze(0)}
    run = tiny.train(tmp_path / "run", steps=200, eval_every=200, eval_episodes=1, **given)
    told = {call.args[0]: call.args[1:] for call in board.add_scalar.call_args_list}
    assert told["eval/return"] == (pytest.approx(np.mean(run.evaluations()[0]["return"])), 200)
    assert "train/return" in told and not [name for name in told if "frozen" in name]


def test_without_evaluations_there_is_no_best(tmp_path: Path) -> None:
    run = tiny.train(tmp_path / "run", steps=60)
    assert "best" not in run.manifest or run.manifest["best"] == {}
    with pytest.raises(
        DamperError, match=r"run holds no best policy of agent 0: train with eval_every"
    ):
        run.policy(0, best=True)


def test_asked_later_a_finished_run_says_so(tmp_path: Path) -> None:
    tiny.train(tmp_path / "run", steps=60)
    with pytest.raises(DamperError, match="eval_every was 0, now 30"):
        tiny.train(tmp_path / "run", steps=60, eval_every=30)
    names = [
        default_folder(small.settings(**given))
        for given in ({}, {"eval_episodes": 9}, {"eval_every": 30})
    ]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("given", [{"eval_every": -1}, {"eval_episodes": 0}, {"eval_every": 2.5}])
def test_mistakes_get_a_sentence(given: dict[str, Any]) -> None:
    with pytest.raises(
        DamperError, match=f"{next(iter(given))} must be a whole number of at least"
    ):
        small.settings(**given)
