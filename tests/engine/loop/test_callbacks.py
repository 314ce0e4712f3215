"""Callbacks see a run under way, may stop it or freeze agents, and lose nothing when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import damper
from damper.engine.loop.trainer import Trainer
from damper.errors import DamperError
from tests import tiny
from tests.engine import killed_run, small


def trained(made: Any, out: Path, *callbacks: Any) -> Trainer:
    trainer = Trainer(made, out, callbacks=callbacks)
    trainer.train()
    return trainer


def test_they_are_called_with_step_metrics_and_policies(tmp_path: Path) -> None:
    seen: list[damper.Training] = []
    obs, actions = np.zeros(3, np.float32), []

    def note(training: damper.Training) -> None:
        seen.append(training)
        actions.append([policy.predict(obs)[0] for policy in training.policies()])
        assert training.policy(1).info.steps == training.step

    run = tiny.train(tmp_path / "run", callbacks=[note], seeds=(3, 5))
    assert [training.step for training in seen] == [100, 200, 300]
    assert [training.metrics for training in seen] == run.metrics()
    assert seen[0].agents == run.agents and seen[0].run == run
    assert not np.allclose(actions[0], actions[-1]), "they are the policies of that moment"
    np.testing.assert_array_equal(
        actions[-1], [policy.predict(obs)[0] for policy in run.policies()]
    )
    tiny.train(tmp_path / "run", callbacks=note, seeds=(3, 5))
    assert len(seen) == 3, "a finished run is not trained"


def test_false_stops_the_run_which_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    made = small.settings(steps=150, checkpoint_every=0)
    steps: list[int] = []

    def stop(training: damper.Training) -> bool:
        steps.append(training.step)
        return training.step != 50

    stopped = trained(made, tmp_path / "run", stop).run
    assert not stopped.finished and stopped.has_checkpoint and stopped.policy(1).info.steps == 51
    whole, again = trained(made, tmp_path / "whole"), trained(made, tmp_path / "run", stop)
    assert steps == [50, 100, 150] and again.run.finished
    assert killed_run.sums(again) == killed_run.sums(whole)


def test_one_false_is_enough_whatever_later_callbacks_return(tmp_path: Path) -> None:
    made = small.settings(steps=150, checkpoint_every=0)
    trainer = trained(made, tmp_path / "run", lambda training: False, lambda training: None)
    assert trainer.step == 51 and not trainer.run.finished


def test_an_agent_is_frozen_once(tmp_path: Path) -> None:
    made = small.settings(steps=150, checkpoint_every=0)

    def freeze(training: damper.Training) -> None:
        training.freeze(1)

    run = trained(made, tmp_path / "run", freeze).run
    assert run.manifest["frozen_by_callback"] == {"1": 50}, "not again at steps 100 and 150"


def test_a_callback_cannot_freeze_an_agent_whose_gradient_was_not_finite(tmp_path: Path) -> None:
    made = small.settings(steps=150, checkpoint_every=0)
    trainer = Trainer(made, tmp_path / "run", callbacks=(lambda training: training.freeze(1),))
    trainer.learner.state()["critic"][1] = float("nan")
    run = trainer.train()
    assert run.manifest["frozen_by_callback"] == {} and set(run.manifest["frozen"]) == {"1"}


def test_a_frozen_agent_stays_as_it_was_and_no_other_notices(tmp_path: Path) -> None:
    made = small.settings(steps=150, checkpoint_every=0)
    kept: list[damper.Policy] = []

    def freeze(training: damper.Training) -> bool:
        if training.step == 50:
            training.freeze(1)
            kept.append(training.policy(1))
        return training.step != 100 or training.metrics["frozen_by_callback"] != [-1, 50]

    trained(made, tmp_path / "run", freeze)
    run, whole = trained(made, tmp_path / "run").run, trained(made, tmp_path / "whole").run
    assert torch.equal(run.policy(1).flat_params, kept[0].flat_params), "through a resumption too"
    assert torch.equal(run.policy(0).flat_params, whole.policy(0).flat_params) and not torch.equal(
        run.policy(1).flat_params, whole.policy(1).flat_params
    )
    assert run.manifest["frozen_by_callback"] == {"1": 50} and run.manifest["frozen"] == {}
    assert (
        whole.manifest["frozen_by_callback"] == {}
        and "frozen_by_callback" not in whole.metrics()[-1]
    )
    assert run.metrics()[-1]["frozen"] == [-1, -1], "its gradient was finite"
    assert [resumed["step"] for resumed in run.manifest["resumed"]] == [101]


@pytest.mark.gpu
def test_freezing_reaches_recorded_updates(tmp_path: Path) -> None:
    made = small.settings(steps=150, device="cuda", eval_every=50, eval_episodes=1)
    kept: list[damper.Policy] = []

    def freeze(training: damper.Training) -> None:
        if training.step == 50:
            training.freeze(1)
            kept.append(training.policy(1))

    run = trained(made, tmp_path / "run", freeze).run
    assert (
        torch.equal(run.policy(1).flat_params, kept[0].flat_params)
        and run.policy(0).info.steps == 150
    )
    returns = [line["return"] for line in run.evaluations()]
    assert returns[0][1] == pytest.approx(returns[-1][1]) and returns[0][0] != returns[-1][0]


@pytest.mark.parametrize("agent", [-1, 2, "all"])
def test_freezing_nobody_is_refused(tmp_path: Path, agent: Any) -> None:
    with pytest.raises(DamperError, match=f"agent must be 0 to 1, but {agent!r} was given"):
        tiny.train(tmp_path / "run", callbacks=lambda training: training.freeze(agent))


@pytest.mark.parametrize("step", [100, 300])
def test_what_a_callback_raises_is_raised_after_saving(tmp_path: Path, step: int) -> None:
    later: list[int] = []

    def fail(training: damper.Training) -> None:
        if training.step == step:
            raise LookupError("no such metric")

    given: dict[str, Any] = {"checkpoint_every": 0}
    with pytest.raises(LookupError, match="no such metric"):
        tiny.train(
            tmp_path / "run",
            callbacks=[fail, lambda training: later.append(training.step)],
            **given,
        )
    assert step not in later
    run = damper.Run(tmp_path / "run")
    assert run.finished if step == 300 else run.has_checkpoint
    assert tiny.train(tmp_path / "run", **given).finished


@pytest.mark.parametrize("wrong", [3, [print, "x"]])
def test_what_cannot_be_called_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(
        DamperError,
        match=r"callbacks must be functions that take a damper.Training, but .* was given",
    ):
        tiny.train(tmp_path / "run", callbacks=wrong)
    assert not (tmp_path / "run").exists()
