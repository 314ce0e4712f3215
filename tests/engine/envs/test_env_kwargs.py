"""The environment's own arguments, from ``damper.train`` to its evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

import damper
from damper.engine.envs.gymnasium_pool import make_env
from damper.engine.loop.trainer import Trainer
from damper.engine.settings import resolve
from damper.engine.train import default_folder, run_settings
from damper.errors import DamperError
from paper.experiments.identity import identity
from tests import tiny
from tests.engine import small

MOON = {"g": 1.6}


def light_pendulum(g: float = 10.0) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", g=g)


def gravities(trainer: Trainer) -> set[float]:
    return {env.unwrapped.g for env in trainer.pool.envs}  # type: ignore[attr-defined]


def test_it_is_trained_recorded_and_evaluated_with_them(tmp_path: Path) -> None:
    trainer = Trainer(small.settings(steps=30, env_kwargs=MOON), tmp_path / "run")
    assert gravities(trainer) == {1.6}
    run = trainer.train()
    assert run.manifest["settings"]["env_kwargs"] == MOON
    for spec in (
        run.policy().env_spec,
        EnvSpec.from_json(damper.evaluate(run, episodes=1).env_spec or ""),
    ):
        assert spec.kwargs["g"] == 1.6
    assert run.policy().env_spec.make().unwrapped.g == 1.6  # type: ignore[attr-defined]


def test_a_callable_gets_them(tmp_path: Path) -> None:
    settings = resolve(light_pendulum, steps=30, env_kwargs=MOON)
    assert gravities(Trainer(settings, tmp_path / "run")) == {1.6}


@pytest.mark.parametrize("env", ["Pendulum-v1", gymnasium.spec("Pendulum-v1")])
def test_a_missing_opengl_is_told_by_the_variable_that_names_it(
    env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(
        *_: object, **__: object
    ) -> None:  # as `import mujoco` does where MUJOCO_GL names a missing library
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")

    monkeypatch.setattr(gymnasium, "make", fail)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(
        DamperError, match="MUJOCO_GL=osmesa names an OpenGL that is not installed: unset it"
    ):
        make_env(env)


@pytest.mark.parametrize(
    ("env", "given", "told"),
    [
        (
            "Pendulum-v1",
            3,
            r"env_kwargs must be a dict of the environment's arguments, but 3 was given",
        ),
        (
            "Pendulum-v1",
            {1: 2},
            r"env_kwargs must be a dict of the environment's arguments, but \{1: 2\} was given",
        ),
        (
            "Pendulum-v1",
            {"g": {1}},
            r"env_kwargs must hold values that JSON can represent, but g is \{1\}: .* callable",
        ),
        (
            "Pendulum-v1",
            {"gravity": 3},
            r"env_kwargs must be arguments of 'Pendulum-v1', got \{'gravity': 3\}",
        ),
        (
            light_pendulum,
            {"gravity": 3},
            r"env_kwargs must be arguments of 'light_pendulum', got \{'gravity': 3\}",
        ),
    ],
)
def test_mistakes_get_a_sentence(tmp_path: Path, env: Any, given: Any, told: str) -> None:
    with pytest.raises(DamperError, match=told):
        damper.train(env, steps=30, env_kwargs=given, out=tmp_path / "run", **tiny.SETTINGS)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_envpool_s_environments_are_what_their_id_names() -> None:
    with pytest.raises(
        DamperError, match=r"env_kwargs must be left out with backend='envpool'.*use backend="
    ):
        resolve("Pendulum", env_kwargs=MOON, backend="envpool")


def test_other_arguments_are_another_run(tmp_path: Path) -> None:
    plain, moon = (resolve("Pendulum", steps=30, env_kwargs=given) for given in (None, MOON))
    assert (
        default_folder(resolve("Pendulum", steps=30))
        == default_folder(plain)
        != default_folder(moon)
    )
    assert resolve("Pendulum", env_kwargs={}).env_kwargs is None
    one, other = (identity(made.record(), {"seed": 0}, {}, 10) for made in (plain, moon))
    assert one != other and "env_kwargs" not in one
    run = Trainer(small.settings(steps=30), tmp_path / "run").train()
    with pytest.raises(DamperError, match=r"env_kwargs was None, now \{'g': 1.6\}"):
        run_settings(small.settings(steps=30, env_kwargs=MOON), run.path)


def test_a_run_from_before_goes_on(tmp_path: Path) -> None:
    run = Trainer(small.settings(steps=30), tmp_path / "run").train()
    settings = {
        name: value for name, value in run.manifest["settings"].items() if name != "env_kwargs"
    }
    (run.path / "manifest.json").write_text(json.dumps({**run.manifest, "settings": settings}))
    assert run_settings(small.settings(steps=30), run.path).finished
