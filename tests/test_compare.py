"""``compare`` evaluates where it trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gymnasium
import pytest

from damper.compare import compare
from damper.errors import DamperError
from tests import tiny


def moon_pendulum(g: float = 10.0) -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1", g=g)


@pytest.mark.parametrize("env", ["Pendulum-v1", moon_pendulum])
def test_methods_are_evaluated_with_the_environment_s_arguments(
    env: str | Callable[..., gymnasium.Env], tmp_path: Path
) -> None:
    settings = {**tiny.SETTINGS, "env_kwargs": {"g": 1.6}}
    comparison = compare(
        env, methods="plain", seeds=1, steps=60, episodes=1, out=tmp_path / "c", **settings
    )
    assert json.loads(comparison.evaluations["plain"].env_spec)["kwargs"]["g"] == 1.6


def test_no_episodes_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(DamperError, match="episodes must be at least 1"):
        compare("Pendulum-v1", steps=60, episodes=0, out=tmp_path / "c", **tiny.SETTINGS)
    assert not (tmp_path / "c").exists()


def test_the_first_line_says_what_will_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def stop(*_: object, **__: object) -> None:
        said.append(capsys.readouterr().out)
        raise InterruptedError

    monkeypatch.setattr("damper.compare.run_settings", stop)
    settings = {**tiny.SETTINGS, "progress": True, "eta": [0.0, 1.0], "device": "cpu"}
    with pytest.raises(InterruptedError):
        compare("Pendulum-v1", seeds=2, steps=6000, out=tmp_path / "c", **settings)
    assert said == [
        "Training plain (2 agents) and damper (4 agents) on Pendulum-v1 with TD3, 6,000 steps "
        f"each, on cpu, into {tmp_path / 'c'}.\n"
    ]
