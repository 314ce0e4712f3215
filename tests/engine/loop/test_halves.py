"""Environments in two halves make the steps that one pool makes, and train the same agents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damper.engine.envs import make_pool
from damper.engine.envs.halves import Halves, fitting_pool, shared_threads
from damper.engine.loop.trainer import Trainer
from damper.engine.run.folder import Run
from damper.engine.settings import Settings
from damper.errors import DamperError
from tests.engine.loop.test_side_by_side import actions, lines
from tests.engine.loop.test_side_by_side import settings as tiny
from tests.engine.pools import play, through_a_file

pytest.importorskip("envpool")

SEEDS = (3, 0, 7, 1, 5)


def settings(**given: Any) -> Settings:
    return tiny("damper", SEEDS, **{"overlap": True, "eta": 0.5, "dtype": "float64", **given})


def check_same(ours: Run, theirs: Run) -> None:
    """Products of fewer agents are rounded differently; simulators take float32 actions, where that is lost."""
    assert ours.finished and theirs.finished
    for a, b in zip(lines(ours), lines(theirs), strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert np.array(a[name], float) == pytest.approx(np.array(b[name], float), rel=1e-6, nan_ok=True), name
    np.testing.assert_allclose(actions(ours), actions(theirs), rtol=0, atol=1e-6)


def train(out: Path, wanted: Settings, halves: bool) -> Run:
    make = Halves(wanted, SEEDS) if halves else make_pool(wanted.env, SEEDS, "envpool", 1)
    return Trainer(wanted, out, pool=make).train()


def test_a_pool_in_halves_makes_the_steps_of_a_whole_one() -> None:
    halves, whole = Halves(settings(), SEEDS), make_pool("Pendulum", SEEDS, "envpool", 1)
    np.testing.assert_array_equal(halves.reset(), whole.reset())
    for ours, theirs in zip(play(halves, 250), play(whole, 250), strict=True):  # episodes have 200 steps
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    assert halves.state() == whole.state() and halves.size == whole.size
    np.testing.assert_array_equal(
        halves.restore(through_a_file(halves.state())), whole.restore(through_a_file(whole.state()))
    )
    assert halves.state() == whole.state() and halves.state()["restores"] == 1 and halves.resumed_fresh
    with pytest.raises(DamperError, match="state must come from a pool"):
        halves.restore({**halves.state(), "seeds": [1, 2]})
    for pool in (halves, whole):
        pool.close()


@pytest.mark.parametrize("own", [{}, {"train_freq": 7, "gradient_steps": 3}, {"checkpoint_every": 60}])
def test_halves_train_what_one_pool_trains(tmp_path: Path, own: dict[str, Any]) -> None:
    ours, theirs = (train(tmp_path / str(halves), settings(**own), halves) for halves in (True, False))
    check_same(ours, theirs)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_acting_beside_an_update_under_way_sees_what_was_shown(tmp_path: Path, compile: bool) -> None:
    # Large enough that updates are still under way when the halves act.
    own = {"device": "cuda", "compile": compile, "net_arch": (400, 300), "batch_size": 256, "dtype": "float32"}
    found = [train(tmp_path / str(i), settings(**own), halves) for i, halves in enumerate((True, False, True))]
    assert actions(found[0]) == actions(found[2]), "the same every time"
    np.testing.assert_allclose(actions(found[0]), actions(found[1]), rtol=0, atol=1e-3)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_killed_run_goes_on_from_where_both_halves_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    for halves in (True, False):
        wanted, out = settings(checkpoint_every=60, device=device), tmp_path / str(halves)
        pool = Halves(wanted, SEEDS) if halves else make_pool(wanted.env, SEEDS, "envpool", 1)
        trainer = Trainer(wanted, out, pool=pool)
        original = trainer.on_transition

        def take(*step: Any, trainer: Trainer = trainer, original: Any = original) -> None:
            original(*step)
            if trainer.step == 150:
                raise KeyboardInterrupt

        monkeypatch.setattr(trainer, "on_transition", take)
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    again = [train(tmp_path / str(halves), wanted, halves) for halves in (True, False)]
    assert [run.manifest["halves"] for run in again] == [True, False]
    assert [event["step"] for event in again[0].manifest["resumed"]] == [120]
    check_same(*again)


def test_one_half_steps_while_the_other_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = settings(steps=30, checkpoint_every=20)
    pool, order = Halves(wanted, SEEDS), []
    trainer = Trainer(wanted, tmp_path / "run", pool=pool)
    watched = [(pool.pools[0], "first"), (pool.pools[1], "second")]
    for part, half in watched:
        for name in ("send", "receive"):
            told, call = f"{half} {name}", getattr(part, name)
            monkeypatch.setattr(part, name, lambda *a, told=told, call=call: (order.append(told), call(*a))[1])
    original = trainer.learner.learn
    monkeypatch.setattr(trainer.learner, "learn", lambda: (order.append("learn"), original())[1])
    trainer.train()
    usual = ["first receive", "first send", "second receive", "learn", "second send"]
    together = ["first receive", "second receive", "learn", "first send", "second send"]
    # Where everything is saved, and at the end, both wait for each other.
    assert order[-58:] == [*usual, *together, *usual * 9, *together[:3]]


@pytest.mark.parametrize(
    ("own", "halved"),
    [
        ({}, True),
        ({"device": "cpu"}, False),
        ({"overlap": False}, False),
        ({"env_threads": 5}, False),
        ({"backend": "gymnasium"}, False),
    ],
)
def test_halves_where_a_gpu_learns_and_cores_are_fewer_than_environments(own: dict[str, Any], halved: bool) -> None:
    # Made by hand: settings with a device that is not there are refused.
    values = {**settings(env_threads=4).__dict__, "device": "cuda", **own}
    pool = fitting_pool(Settings(**values), SEEDS)
    assert isinstance(pool, Halves) == halved
    pool.close()


def test_two_pools_share_the_threads() -> None:
    assert [shared_threads(settings(env_threads=count)) for count in (9, 8, 1)] == [(5, 4), (4, 4), (1, 1)]
    assert sum(shared_threads(settings(env_threads=None))) >= max(2, len(os.sched_getaffinity(0)))


def test_halves_need_two_agents_and_without_overlap_step_as_one(tmp_path: Path) -> None:
    with pytest.raises(DamperError, match=r"seeds must be at least two to step in halves, but \[3\] was given"):
        Halves(settings(), (3,))
    with pytest.raises(DamperError, match="threads must be at least 1, got 0"):
        Halves(settings(env_threads=0), SEEDS)
    check_same(*(train(tmp_path / str(halves), settings(overlap=False), halves) for halves in (True, False)))
