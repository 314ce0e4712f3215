"""Every method trains on a real task, whole or cut short: nothing diverges, nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from damper.engine.loop.trainer import Trainer
from damper.engine.run.folder import Run
from damper.engine.settings import Settings
from damper.methods import METHODS
from tests.engine import killed_run, small

ROOT = Path(__file__).parents[1]
BACKBONES = ["td3", "sac"]
COMPOSED = "damper+grad-caps+pave"
# One of each kind of state: both backbones' own, no rule, a rule's tensor and tuple, ASAP's
# average, drawn noise, previous observations, and a composition. The other methods store what these
# do, and are killed in the slow tests.
REMEMBERED = [("td3", "damper"), ("td3", "bloop"), ("td3", "asap"), ("td3", COMPOSED)]
REMEMBERED += [("sac", "plain"), ("sac", "metabalance"), ("sac", "grad-caps"), ("sac", "l2c2")]
SHORT = {
    "steps": 100,
    "train_freq": 2,
    "checkpoint_every": 40,
    "log_every": 50,
    "net_arch": (8, 8),
    "batch_size": 8,
}
LONG = {
    "steps": 3000,
    "checkpoint_every": 500,
    "log_every": 500,
    "net_arch": (16, 16),
    "seeds": (0,),
}
KILLED_AT = 1700


def check_sound(run: Run, updates: int) -> None:
    """All budget spent, no agent frozen, every number of every policy and metric finite."""
    last = run.metrics()[-1]
    assert run.finished and run.manifest["frozen"] == {}
    assert last["updates"] == updates
    assert np.isfinite(last["critic_loss"]).all() and np.isfinite(last["actor_loss"]).all()
    obs = np.array([[0.6, 0.8, -1.0], [-1.0, 0.0, 5.0]], np.float32)
    for agent in range(len(run.agents)):
        assert np.isfinite(run.policy(agent)(obs)).all()


def interrupt(line: dict[str, Any]) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("backbone", "name"), REMEMBERED)
def test_stopped_and_started_again_it_ends_the_same(
    name: str, backbone: str, tmp_path: Path
) -> None:
    settings = small.settings(backbone, name, **SHORT)
    whole = Trainer(settings, tmp_path / "whole")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        Trainer(settings, tmp_path / "cut", (interrupt,)).train()
    again = Trainer(settings, tmp_path / "cut")
    assert again.step == 40, (
        "it was stopped at its first line of metrics, the checkpoint lies before"
    )
    check_sound(again.train(), updates=40)
    assert killed_run.sums(again) == killed_run.sums(whole)


def long_settings(name: str, backbone: str) -> Settings:
    return small.settings(backbone, name, **LONG)


def train_until_killed(name: str, backbone: str, folder: str) -> None:
    """In a process of its own: train, and die without a word."""
    killed_run.arm("step", KILLED_AT)
    Trainer(long_settings(name, backbone), Path(folder)).train()


@pytest.mark.slow
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", [*METHODS, COMPOSED])
def test_three_thousand_steps_with_a_kill_in_between(
    name: str, backbone: str, tmp_path: Path
) -> None:
    arguments = ", ".join(json.dumps(word) for word in (name, backbone, str(tmp_path / "run")))
    code = (
        f"from tests.test_methods_training import train_until_killed as train; train({arguments})"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    trainer = Trainer(long_settings(name, backbone), tmp_path / "run")
    assert trainer.step == 1500
    start = trainer.learner.state()["actor"].clone()
    check_sound(trainer.train(), updates=2980)
    assert not start.equal(trainer.learner.state()["actor"]), "it went on learning"
