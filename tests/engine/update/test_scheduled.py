"""Settings that follow a run's progress, per agent, with the same bits however they run."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3.common.utils import LinearSchedule

from damper.engine.loop.trainer import Trainer
from damper.engine.run.folder import Run
from damper.engine.settings import resolve
from damper.engine.train import default_folder, run_settings
from damper.errors import DamperError
from paper.experiments.identity import identity
from tests.engine import killed_run, small

RATES = ("linear:1e-3:1e-4", 1e-3)
SCHEDULES: dict[str, Any] = {"learning_rate": RATES, "eta": "cosine:0:1:0.5", "seeds": (3,)}


def halved(remaining: float) -> float:
    return 1e-3 if remaining > 0.5 else 5e-4


def values_seen(trainer: Trainer) -> list[tuple[float, list[float], list[float]]]:
    """At each update, the share of the run that remains, and what Adam and the rule are given."""
    seen: list[Any] = []
    learner = trainer.learner
    for with_actor, update in list(learner._sample_and_update.items()):

        def spy(update: Any = update) -> None:
            population = learner
            rate, eta = population.hparams["learning_rate"], population.method_kwargs["rule"]["eta"]
            done = int(learner.replay.sampleable_on_device) / trainer.settings.steps
            seen.append((1 - done, rate.tolist(), eta.tolist()))
            update()

        learner._sample_and_update[with_actor] = spy
    return seen


def same_bits(ours: Trainer, theirs: Trainer) -> None:
    for name, tensor in ours.learner.state().items():
        torch.testing.assert_close(tensor, theirs.learner.state()[name], rtol=0, atol=0, msg=name)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_updates_read_the_tensors_that_are_set(dtype: str) -> None:
    learner = small.learner(small.settings(method="damper", dtype=dtype, **SCHEDULES))
    assert learner.scheduled is not None and set(learner.scheduled.tensors) == {
        "learning_rate",
        "eta",
    }
    population, tensors = learner, learner.scheduled.tensors
    assert population.hparams["learning_rate"] is tensors["learning_rate"], (
        "a copy would stay at its first value"
    )
    assert population.method_kwargs["rule"]["eta"] is tensors["eta"]


@pytest.mark.parametrize("train_freq", [1, 7])
def test_every_update_has_the_value_that_sb3_s_schedule_has_there(
    tmp_path: Path, train_freq: int
) -> None:
    trainer = Trainer(
        small.settings(method="damper", steps=120, train_freq=train_freq, **SCHEDULES), tmp_path
    )
    seen = values_seen(trainer)
    trainer.train()
    assert len(seen) == (100 if train_freq == 1 else 15)
    theirs = LinearSchedule(1e-3, 1e-4, 1.0)
    for remaining, rates, etas in seen:
        assert rates == torch.tensor([theirs(remaining), 1e-3]).tolist()
        assert (etas[0] == 1.0) == (remaining <= 0.5) and etas[0] == etas[1]
    assert seen[-1][1][0] == pytest.approx(1e-4, rel=0.1) and seen[0][2][0] < 0.3
    line = trainer.run.metrics()[-1]
    assert line["learning_rate"] == [theirs(seen[-1][0]), 1e-3] and line["eta"] == [1.0, 1.0]


def test_a_level_schedule_trains_what_a_number_trains(tmp_path: Path) -> None:
    level, number = (
        Trainer(
            small.settings(method="damper", steps=80, learning_rate=rate, eta=eta),
            tmp_path / str(eta),
        )
        for rate, eta in (("linear:1e-3:1e-3", lambda remaining: 0.5), (1e-3, (0.5,)))
    )
    level.train()
    number.train()
    same_bits(level, number)


def test_without_a_schedule_nothing_is_set(tmp_path: Path) -> None:
    learner = small.learner(small.settings(method="damper", learning_rate=(1e-3, 1e-4)))
    assert learner.scheduled is None and "learning_rate" not in learner.settings.scheduled()


# --- however they run -----------------------------------------------------------------------------


def test_an_agent_s_schedule_is_its_own(tmp_path: Path) -> None:
    together = small.learner(small.settings(method="damper", **SCHEDULES))
    own = {**SCHEDULES, "learning_rate": RATES[0]}
    alone = small.learner(small.settings(method="damper", **own))
    for _ in range(30):
        for learner in (together, alone):
            learner.update()
            learner.replay.set_stored(learner.replay.stored + 5)
    for name in together.state():
        for ours, theirs in zip(
            small.pieces(together, name, 0),
            small.pieces(alone, name, 0),
            strict=True,
        ):
            assert (ours - theirs).norm() <= 1e-5 * theirs.norm(), name
    assert not torch.equal(*together.state()["actor"])


def test_learning_while_environments_step_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, after = (
        Trainer(small.settings(method="damper", **SCHEDULES), tmp_path / name)
        for name in ("a", "b")
    )
    monkeypatch.setattr(after, "update_ahead", lambda: None)
    ahead.train()
    after.train()
    same_bits(ahead, after)


@pytest.mark.parametrize("train_freq", [1, 60])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, train_freq: int) -> None:
    own = {**SCHEDULES, "learning_rate": halved, "train_freq": train_freq, "log_every": 10}
    made = small.settings(method="damper", steps=150, checkpoint_every=40, **own)
    whole = Trainer(made, tmp_path / "whole")
    whole.train()
    killed_run.interrupt(made, tmp_path / "run", 100)
    resumed = Trainer(made, tmp_path / "run")
    assert resumed.step == 80
    resumed.train()
    assert killed_run.sums(resumed) == killed_run.sums(whole)
    shown = [[line["eta"] for line in trainer.run.metrics()] for trainer in (resumed, whole)]
    assert shown[0] == shown[1], "also where no update came between going on and the next line"


def test_compiled_updates_see_the_values_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    own = {**SCHEDULES, "dtype": "float64", "graph": False}
    eager, traced = (
        small.learner(small.settings(method="damper", compile=c, **own)) for c in (False, True)
    )
    for _ in range(12):
        for learner in (eager, traced):
            learner.update()
            learner.replay.set_stored(learner.replay.stored + 15)
    for name, tensor in traced.state().items():
        torch.testing.assert_close(tensor, eager.state()[name], rtol=1e-9, atol=1e-12, msg=name)
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, True])
def test_graphs_see_the_values_of_now(compile: bool) -> None:
    own = {**SCHEDULES, "dtype": "float64", "device": "cuda"}
    learners = [
        small.learner(small.settings(method="damper", **own, **how), device="cuda")
        for how in ({"graph": False}, {"graph": True, "compile": compile})
    ]
    for _ in range(30):
        for learner in learners:
            learner.update()
            learner.replay.set_stored(learner.replay.stored + 5)
    for name, tensor in learners[1].state().items():
        torch.testing.assert_close(
            tensor, learners[0].state()[name], rtol=1e-8, atol=1e-11, msg=name
        )


# --- records --------------------------------------------------------------------------------------


def test_a_schedule_is_recorded_and_another_one_is_another_run(tmp_path: Path) -> None:
    made = small.settings(method="damper", **SCHEDULES)
    assert made.agents()[0] == {"learning_rate": "linear:0.001:0.0001", "seed": 3}
    assert json.loads(json.dumps(made.record()))["method_settings"]["eta"] == "cosine:0:1:0.5"
    assert small.settings(method="damper", **{**SCHEDULES, "eta": "cosine:0.0:1e0:.5"}) == made
    functions = (
        halved,
        LinearSchedule(1e-3, 0, 1),
        LinearSchedule(1e-3, 0, 0.5),
        lambda p: 1e-3,
        lambda p: 1e-4,
    )
    rates = (1e-3, "linear:1e-3:0", "linear:1e-3:1e-4", *functions)
    assert len({default_folder(resolve("Pendulum", learning_rate=rate)) for rate in rates}) == len(
        rates
    )
    Trainer(made, tmp_path).train()
    with pytest.raises(DamperError, match=r"'eta': 'cosine:0:1:0.5', .* now {'eta': 'cosine:0:1',"):
        run_settings(
            small.settings(method="damper", **{**SCHEDULES, "eta": "cosine:0:1"}), tmp_path
        )
    run = Run(tmp_path)
    assert run.policy(0).info.settings["eta"] == "cosine:0:1:0.5"
    who = identity(made.record(), made.agents()[0], {}, 10)
    assert who["training"]["learning_rate"] == "linear:0.001:0.0001"
