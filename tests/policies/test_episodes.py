"""Episodes without an end: told, and then given up."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.wrappers import TimeLimit

from damper.engine.loop import trainer
from damper.engine.loop.trainer import Trainer
from damper.engine.settings import resolve
from damper.errors import DamperError
from damper.policies import episodes as module
from damper.policies.episodes import run_episodes


def still(obs: Any) -> Any:
    return np.zeros((len(obs), 1), np.float32)


def test_an_evaluation_without_an_end_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIVE_UP_AFTER_STEPS", 50)
    told = (
        "env='PendulumEnv' must have episodes that end, but 2 of 2 had not ended after 50 "
        "steps: .*TimeLimit, or reg"
    )
    with pytest.raises(DamperError, match=told):
        run_episodes(still, PendulumEnv, [0, 1])
    longer, _ = run_episodes(still, lambda: TimeLimit(PendulumEnv(), 60), [0, 1])
    assert [episode.length for episode in longer] == [60, 60], (
        "a limit that the environment tells is waited for"
    )


def test_training_warns_once_where_no_episode_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.WARNING, logger="damper")
    monkeypatch.setattr(trainer, "WARN_AFTER_STEPS", 50)
    tiny = {"net_arch": (8,), "batch_size": 8, "learning_starts": 500, "steps": 150}
    for index, env in enumerate(
        (lambda: TimeLimit(PendulumEnv(), 40), lambda: TimeLimit(PendulumEnv(), 70))
    ):
        Trainer(resolve(env, "td3", "plain", seeds=(0, 1), **tiny), tmp_path / str(index)).train()
    assert not caplog.records
    Trainer(
        resolve(PendulumEnv, "td3", "plain", seeds=(0, 1), **tiny), tmp_path / "endless"
    ).train()
    (record,) = caplog.records
    assert "no episode of PendulumEnv ended within 50 steps" in record.getMessage()
