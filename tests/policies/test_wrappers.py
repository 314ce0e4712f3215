"""Another environment by its id: in the recorded wrappers, or said to be without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import damper
from damper.cli import main
from damper.errors import DamperError
from tests.wrappers import Flip, Silent

sb3 = pytest.importorskip("damper.sb3")


def pendulum() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1")


def save(path: Path, env: Any) -> Path:
    kwargs = {"net_arch": [8]}
    sb3.TD3("MlpPolicy", env, policy_kwargs=kwargs, buffer_size=100, seed=3).save(path)
    return path


def first_return(source: Any, env: Any = None) -> float:
    return float(damper.evaluate(source, env, episodes=1).records()[0]["return"])


def test_an_id_keeps_the_recorded_wrappers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path / "model.zip", Flip(pendulum()))
    bare = first_return(path, pendulum)
    assert not caplog.text, "a function makes exactly what it makes"
    assert first_return(path, "Pendulum-v1") == first_return(path) != bare
    assert caplog.text.count("'Pendulum-v1' is put into the wrappers") == 1
    assert "Flip (tests.wrappers:Flip)" in caplog.text


def test_the_contract_is_measured_in_the_recorded_wrappers(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from damper.export import export

    path = save(tmp_path / "model.zip", Flip(pendulum()))
    contracts = [
        export(path, tmp_path / "policy.onnx", env=env, episodes=1) for env in (None, "Pendulum-v1")
    ]
    assert contracts[0]["smoothness"] == contracts[1]["smoothness"]
    assert contracts[0]["env_spec"] == contracts[1]["env_spec"]


def test_wrappers_that_are_not_recorded_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path / "model.zip", Silent(pendulum()))
    with pytest.raises(
        DamperError, match=r"what Silent .*RecordConstructorArgs and its module can be imported"
    ):
        damper.evaluate(path, episodes=1)
    first_return(path, "Pendulum-v1")
    assert "env='Pendulum-v1' is without the changes, not recorded in full" in caplog.text
    assert "trained with: Silent (tests.wrappers:Silent)" in caplog.text


def test_a_run_is_told_of_its_wrappers_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = {"net_arch": (8,), "batch_size": 8, "learning_starts": 50, "progress": False}
    env = "tests.policies.envs:Flipped-v0"
    run = damper.train(env, seeds=(0, 1), steps=55, out=tmp_path / "run", **small)
    expected = damper.evaluate(run, episodes=1).records()
    caplog.clear()
    assert damper.evaluate(run, "Pendulum-v1", episodes=1).records() == expected
    assert caplog.text.count("is put into the wrappers") == 1
    damper.evaluate(run, "Pendulum-v1", episodes=1).save(run.path / "evaluation-Pendulum-v1")
    best = int(np.argmax([row["return"] for row in expected]))
    assert damper.load(run.path, env="Pendulum-v1").info.seed == best, "the same environment"


def test_evaluations_in_two_environments_have_a_folder_each(tmp_path: Path) -> None:
    path = save(tmp_path / "model.zip", pendulum())
    for env in ([], ["--env", "Pendulum-v1"], ["--env", "tests.policies.envs:Heavy-v0"]):
        main(["evaluate", str(path), "--episodes", "1", *env])
    names = ("evaluation", "evaluation-Pendulum-v1", "evaluation-tests.policies.envs-Heavy-v0")
    found = []
    for name in names:
        content = json.loads((tmp_path / f"model.zip-{name}" / "episodes.json").read_text())
        found.append(content["episodes"][0]["return"])
    assert found[0] == found[1] != found[2]
