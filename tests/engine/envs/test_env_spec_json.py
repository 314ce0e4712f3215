"""Which environment it was is recorded, and exactly that one is made again, or refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import NormalizeObservation, RescaleAction, TimeLimit, TransformReward

import damper
from damper.cli import main
from damper.engine.envs import env_spec_from_id, make_pool, spec_of
from damper.engine.envs.env_spec_json import missing_part, to_json
from damper.errors import DamperError
from damper.tasks import TASKS
from paper.cli import main as paper_main
from tests.wrappers import Flip, Silent

SMALL: dict[str, Any] = {
    "steps": 60,
    "net_arch": (8, 8),
    "batch_size": 8,
    "learning_starts": 50,
    "progress": False,
}
MODULE = """
import gymnasium
import numpy as np


class Mass(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        return self.np_random.normal(size=2).astype(np.float32), 1.0, False, False, {}


gymnasium.register("Text-v0", entry_point="envs_of_a_user:Mass", max_episode_steps=7)
gymnasium.register("Class-v0", entry_point=Mass, max_episode_steps=7)
"""


def pendulum(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", **kwargs)


def again(env: gymnasium.Env[Any, Any]) -> EnvSpec:
    assert env.spec is not None
    return EnvSpec.from_json(to_json(env.spec))


def first_steps(env: gymnasium.Env[Any, Any]) -> list[Any]:
    obs, _ = env.reset(seed=3)
    steps = [env.step(np.array([0.7], np.float32))[:4] for _ in range(3)]
    return [obs.tolist(), *((o.tolist(), float(r), t, u) for o, r, t, u in steps)]


@pytest.mark.parametrize(
    "env",
    [
        pendulum(),
        pendulum(g=1.0),
        pendulum(max_episode_steps=2),
        TimeLimit(pendulum(), 2),
        RescaleAction(pendulum(), -1, 1),
        Flip(pendulum(g=3.0), by=0.5),
        gymnasium.wrappers.RecordEpisodeStatistics(Flip(pendulum(render_mode="rgb_array"))),
    ],
)
def test_exactly_that_environment_is_made_again(env: gymnasium.Env[Any, Any]) -> None:
    spec = again(env)
    assert missing_part(spec) is None and "render_mode" not in spec.kwargs
    assert first_steps(gymnasium.make(spec)) == first_steps(env)


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        (Silent(pendulum()), "Silent"),
        (
            NormalizeObservation(pendulum()),
            "NormalizeObservation",
        ),  # its statistics are no argument
        (TransformReward(pendulum(), lambda reward: reward), "TransformReward"),
        (Flip(Silent(pendulum())), "Silent"),
    ],
)
def test_what_a_spec_cannot_describe_is_recorded_as_such(
    env: gymnasium.Env[Any, Any], missing: str
) -> None:
    assert missing in str(missing_part(again(env)))
    with pytest.raises(
        DamperError, match=f"env must be given, because .*'Pendulum-v1' does not say what {missing}"
    ):
        make_pool(again(env), [0])


def test_arguments_that_json_cannot_hold_are_recorded_as_such() -> None:
    assert missing_part(again(pendulum(g=np.float32(1.0)))) == "how it was made"


def test_a_class_of_the_running_program_is_not_found_by_another() -> None:
    for entry in ("__main__:Mass", lambda: Silent(pendulum())):
        assert (
            missing_part(EnvSpec.from_json(to_json(EnvSpec("Mass-v0", entry_point=entry))))
            == "how it was made"
        )


# --- the engine -----------------------------------------------------------------------------------


def test_manifest_and_policies_hold_the_spec(tmp_path: Path) -> None:
    run = damper.train("Pendulum", out=tmp_path / "run", **SMALL)
    for recorded in (run.manifest["env_spec"], run.policy().info.env_spec):
        assert EnvSpec.from_json(recorded) == gymnasium.spec("Pendulum-v1")


@pytest.mark.parametrize("name", TASKS)
def test_an_envpool_task_is_the_gymnasium_task_and_is_not_made_to_tell(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("envpool")
    monkeypatch.setattr(gymnasium, "make", None)
    spec = EnvSpec.from_json(to_json(spec_of(name, "envpool").env_spec))
    assert (
        spec.id == TASKS[name].gymnasium_id
        and spec.kwargs == TASKS[name].kwargs
        and missing_part(spec) is None
    )
    assert spec.max_episode_steps == make_pool(spec, [0], "envpool").spec.max_episode_steps


def test_envpool_makes_only_what_an_id_names() -> None:
    pytest.importorskip("envpool")
    for env in (
        pendulum(g=1.0),
        pendulum(max_episode_steps=50),
        Flip(pendulum()),
        pendulum(g=np.float32(1.0)),
    ):
        with pytest.raises(
            DamperError,
            match="other arguments, another time limit or wrappers; use backend='gymnasium'",
        ):
            make_pool(again(env), [0], "envpool")


@pytest.mark.parametrize("name", ["Text-v0", "Class-v0"])
def test_an_environment_of_a_module_is_trained_and_then_evaluated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from the console script, whose path does not have the current folder."""
    (tmp_path / "envs_of_a_user.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", ".")])
    tiny = ["--steps", "55", "--net-arch", "8", "--learning-starts", "50", "--batch-size", "8"]
    try:
        main(["train", f"envs_of_a_user:{name}", "--out", "run", *tiny])
        # Another process knows neither the module nor the id yet.
        sys.modules.pop("envs_of_a_user")
        gymnasium.registry.pop("Text-v0")
        gymnasium.registry.pop("Class-v0")
        main(["evaluate", "run", "--episodes", "1"])
    finally:
        sys.modules.pop("envs_of_a_user", None)
        gymnasium.registry.pop("Text-v0", None)
        gymnasium.registry.pop("Class-v0", None)
    assert f"envs_of_a_user:{name}" in capsys.readouterr().out
    evaluation = json.loads((tmp_path / "run/evaluation/episodes.json").read_text())
    assert (
        evaluation["env"] == f"envs_of_a_user:{name}" and evaluation["episodes"][0]["length"] == 7
    )


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--method", "of-a-user"],
        ["compare", "--methods", "plain", "of-a-user", "--episodes", "1"],
    ],
)
def test_the_module_of_an_environment_may_register_its_methods(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "lambda primary, auxiliary: primary - 0.1 * auxiliary"
    register = f"import damper\n\ndamper.rules.RULES['of-a-user'] = {rule}\n"
    (tmp_path / "envs_and_rules.py").write_text(
        MODULE.replace("envs_of_a_user", "envs_and_rules") + register
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", ".")])
    tiny = [
        "--steps",
        "55",
        "--net-arch",
        "8",
        "--learning-starts",
        "50",
        "--batch-size",
        "8",
        "--seeds",
        "1",
    ]

    def forget() -> None:
        sys.modules.pop("envs_and_rules", None)
        damper.rules.RULES.pop("of-a-user", None)
        gymnasium.registry.pop("Text-v0", None)
        gymnasium.registry.pop("Class-v0", None)

    try:
        main([*command[:1], "envs_and_rules:Text-v0", *command[1:], "--out", "run", *tiny])
        forget()
        main(["evaluate", "run" if command[0] == "train" else "run/of-a-user", "--episodes", "1"])
        forget()
        damper.train("envs_and_rules:Text-v0", rule="of-a-user", out="python", **SMALL)
        forget()
        request = ["td3-table", "--tasks", "envs_and_rules:Text-v0", "--methods", "of-a-user"]
        paper_main(
            [
                "reproduce",
                *request,
                *tiny,
                "--episodes",
                "1",
                "--results",
                "records",
                "--out",
                "runs",
            ]
        )
        assert len(list(Path("records").glob("spool/**/*.json"))) == 1
    finally:
        forget()


class Pendulum(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Merely called so."""

    def __init__(self) -> None:
        super().__init__(pendulum(max_episode_steps=50))


@pytest.mark.parametrize("env", [Pendulum, lambda: Silent(pendulum(max_episode_steps=50))])
def test_a_callable_is_recorded_as_such(env: Any, tmp_path: Path) -> None:
    run = damper.train(env, out=tmp_path / "run", **SMALL)
    for source in (run, run.policy(), run.policy_path(0)):
        with pytest.raises(
            DamperError, match=r"env must be given, .*does not say what .* did to it"
        ):
            damper.evaluate(source, episodes=1)
        with pytest.raises(DamperError, match="env must be exactly as registered"):
            damper.evaluate(source, episodes=1, backend="envpool")
    assert damper.evaluate(run, env, episodes=1).episodes[0][0].length == 50


def test_an_id_that_is_registered_nowhere_stays_a_name() -> None:
    assert env_spec_from_id("Nowhere-v0") == EnvSpec("Nowhere-v0")


def test_a_run_is_known_by_an_id_or_a_callable(tmp_path: Path) -> None:
    """Two specs of one id would be one run to its folder."""
    with pytest.raises(DamperError, match="env must be an id, or a callable"):
        damper.train(gymnasium.spec("Pendulum-v1"), out=tmp_path / "run", **SMALL)  # type: ignore[arg-type]
