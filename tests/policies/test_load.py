"""Whatever holds a policy is loaded by one call, and predicts alike."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import damper
from damper.cli import main
from damper.errors import DamperError
from damper.export import export
from tests import tiny

OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> damper.Run:
    return tiny.train(tmp_path_factory.mktemp("load") / "run", steps=100)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> damper.Run:
    """Evaluated, the second of two agents being the better one."""
    run = tiny.train(tmp_path_factory.mktemp("load") / "judged", steps=100)
    damper.evaluate(run, episodes=1).save(run.path / "evaluation")
    change(run, lambda row: {**row, "return": [-900.0, -100.0][row["agent"]]})
    return run


def change(run: damper.Run, edit) -> None:
    path = run.path / "evaluation" / "episodes.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"episodes": [edit(row) for row in content["episodes"]]}))


def test_a_policy_file_and_a_run_give_their_policy(run, judged, tmp_path):
    policy = damper.load(run.policy_path(1))
    assert isinstance(policy, damper.Policy) and policy.info.seed == 1
    assert damper.load(str(run.path), agent=1).info == policy.info
    assert damper.load(judged.path).info.seed == 1, "the best by its evaluation"
    alone = tiny.train(tmp_path / "alone", steps=60, seeds=(7,))
    assert damper.load(alone.path).info.seed == 7, "the only one needs no evaluation"


def test_the_best_needs_an_evaluation(run, tmp_path, capsys):
    with pytest.raises(
        DamperError,
        match=r"agent='best' needs an up-to-date evaluation of all agents, .*: run damper evaluate "
        r".*run",
    ):
        damper.load(run.path)
    with pytest.raises(DamperError, match=r"agent must be 0 to 1 or 'best', but 'worst' was given"):
        damper.load(run.path, agent="worst")
    with pytest.raises(SystemExit, match="2"):
        main(["export", str(run.path), "--agent", "best", "--to", str(tmp_path / "policy.onnx")])
    assert "needs an up-to-date evaluation of all agents" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_best_is_exported(run, judged, tmp_path, capsys):
    pytest.importorskip("onnx")
    assert export(judged, tmp_path / "policy.onnx")["training"]["seed"] == 1, "as load does"
    with pytest.raises(DamperError, match="needs an up-to-date evaluation of all agents"):
        export(run, tmp_path / "policy.onnx")
    for chosen in ([], ["--agent", "best"]):
        main(["export", str(judged.path), *chosen, "--to", str(tmp_path / "policy.onnx")])
        assert json.loads((tmp_path / "policy.onnx.json").read_text())["training"]["seed"] == 1
        assert "agent 1 of 2, seed=1, the best by its evaluation;" in capsys.readouterr().out
    for wrong in ("worst", "1.5"):
        with pytest.raises(SystemExit, match="2"):
            main(
                [
                    "export",
                    str(judged.path),
                    "--agent",
                    wrong,
                    "--to",
                    str(tmp_path / "policy.onnx"),
                ]
            )
        assert "best" in capsys.readouterr().err


def test_the_agent_of_several_is_told_and_so_is_a_frozen_one(tmp_path, capsys):
    pytest.importorskip("onnx")
    run = tiny.train(tmp_path / "run", steps=60)
    run.update_manifest(frozen={"1": 7})
    for agent, frozen in ((0, None), (1, 7)):
        words = ["--agent", str(agent)]
        main(
            [
                "export",
                str(run.path),
                *words,
                "--to",
                str(tmp_path / "policy.onnx"),
                "--episodes",
                "0",
            ]
        )
        training = json.loads((tmp_path / "policy.onnx.json").read_text())["training"]
        assert training["agent"] == agent and training.get("frozen_at_update") == frozen
        told = capsys.readouterr().out
        assert f"agent {agent} of 2, seed={agent}; --agent chooses another" in told
        assert ("frozen at update 7" in told) == bool(frozen)


def test_returns_that_are_no_numbers_are_not_the_best(tmp_path):
    run = tiny.train(tmp_path / "run", steps=60)
    damper.evaluate(run, episodes=1).save(run.path / "evaluation")
    change(run, lambda row: {**row, "return": [float("nan"), -1e9][row["agent"]]})
    assert damper.load(run.path).info.seed == 1


def test_an_onnx_file_predicts_as_its_original(run, tmp_path):
    pytest.importorskip("onnxruntime")
    export(run, tmp_path / "policy.onnx", agent=1, episodes=0)
    loaded, policy = damper.load(tmp_path / "policy.onnx"), run.policy(1)
    for obs in (OBS, OBS[0], OBS.astype(np.float64)):
        action, state = loaded.predict(obs)
        np.testing.assert_allclose(action, policy.predict(obs)[0], atol=1e-5)
        assert action.shape == (*obs.shape[:-1], 1) and action.dtype == np.float32 and state is None
    np.testing.assert_array_equal(
        loaded.predict(OBS, deterministic=False)[0], loaded.predict(OBS)[0]
    )  # TD3
    for wrong, told in (
        (OBS[:, :2], r"obs must have shape \[\.\.\., 3\], but has \(5, 2\)"),
        ("no", "real numbers"),
    ):
        with pytest.raises(DamperError, match=told):
            loaded.predict(wrong)
    assert damper.evaluate(loaded, episodes=1).env == "Pendulum-v1"


@pytest.mark.parametrize("batch", [1, "batch"])
def test_an_onnx_file_of_another_exporter_may_fix_the_batch_at_one(batch, tmp_path):
    path = linear_onnx(tmp_path, ["FLOAT", [batch, 3]])
    assert np.array_equal(damper.load(path).predict(OBS)[0], OBS)
    assert damper.evaluate(path, pendulum_of_three_actions, episodes=2).episodes[0][0].length == 200


@pytest.mark.parametrize(
    "inputs",
    [[["DOUBLE", ["batch", 3]]], [["FLOAT", [3]]], [["FLOAT", [7, 3]]], 2 * [["FLOAT", [1, 3]]]],
)
def test_an_onnx_file_with_other_inputs_is_refused(inputs, tmp_path):
    with pytest.raises(
        DamperError, match=r"observations \[batch, d\] in float32 and nothing else, but takes"
    ):
        damper.load(linear_onnx(tmp_path, *inputs))


def linear_onnx(folder: Path, *inputs) -> Path:
    """Its inputs' sum: of one, that one."""
    onnx = pytest.importorskip("onnx")
    values = [
        onnx.helper.make_tensor_value_info(f"x{i}", getattr(onnx.TensorProto, kind), shape)
        for i, (kind, shape) in enumerate(inputs)
    ]
    result = onnx.helper.make_tensor_value_info(
        "sum", *(getattr(onnx.TensorProto, inputs[0][0]), inputs[0][1])
    )
    node = onnx.helper.make_node("Sum", [value.name for value in values], ["sum"])
    graph = onnx.helper.make_graph([node], "sum", values, [result])
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, folder / "theirs.onnx")
    return folder / "theirs.onnx"


def pendulum_of_three_actions() -> gymnasium.Env:
    env, space = gymnasium.make("Pendulum-v1"), gymnasium.spaces.Box(-2.0, 2.0, (3,), np.float32)
    return gymnasium.wrappers.TransformAction(env, lambda action: action[:1], space)


def test_a_sac_file_that_holds_the_mean_alone_does_not_guess(tmp_path):
    pytest.importorskip("onnxruntime")
    run = tiny.train(tmp_path / "run", backbone="sac", steps=60, seeds=(0,))
    export(run, tmp_path / "policy.onnx", episodes=0)
    with pytest.raises(
        DamperError, match=r"deterministic must be True for this policy of sac, .* no distribution"
    ):
        damper.load(tmp_path / "policy.onnx").predict(OBS, deterministic=False)


@pytest.mark.parametrize("trust", [False, True])
def test_a_zip_predicts_as_the_model(trust, tmp_path):
    sb3 = pytest.importorskip("damper.sb3")
    model = sb3.SAC(
        "MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8]}, buffer_size=100, seed=0
    )
    model.save(tmp_path / "model.zip")
    loaded = damper.load(tmp_path / "model", trust=trust)
    np.testing.assert_allclose(
        loaded.predict(OBS)[0], model.predict(OBS, deterministic=True)[0], atol=1e-5
    )
    torch.manual_seed(0)
    drawn = [loaded.predict(OBS, deterministic=False)[0] for _ in range(2)]
    assert not np.allclose(*drawn) and np.abs(drawn).max() <= 2


def test_statistics_go_with_a_zip(tmp_path):
    sb3 = pytest.importorskip("damper.sb3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), clip_obs=2.0)
    env.obs_rms.mean[:] = 0.5
    model = sb3.SAC("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, buffer_size=100, seed=0)
    model.save(tmp_path / "model.zip")
    with pytest.raises(DamperError, match="give its statistics with --vecnormalize"):
        damper.load(tmp_path / "model.zip")
    loaded = damper.load(tmp_path / "model.zip", vecnormalize=env)
    expected = model.predict(env.normalize_obs(OBS), deterministic=True)[0]
    np.testing.assert_allclose(loaded.predict(OBS)[0], expected, atol=1e-5)
    assert not np.allclose(loaded.predict(OBS, deterministic=False)[0], expected)


@pytest.mark.parametrize("trust", [False, True])
def test_statistics_do_not_go_with_a_zip_that_was_trained_without(trust, tmp_path):
    sb3, theirs = pytest.importorskip("damper.sb3"), pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    for kind in (sb3.SAC, theirs.SAC):
        kind("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8]}, buffer_size=100).save(
            tmp_path / "model.zip"
        )
        if kind is theirs.SAC:  # which does not say
            damper.load(tmp_path / "model", vecnormalize=env, trust=trust)
            continue
        with pytest.raises(
            DamperError,
            match=r"vecnormalize must be left out for .*model.zip, which was trained on",
        ):
            damper.load(tmp_path / "model", vecnormalize=env, trust=trust)


def test_sb3_s_own_tools_take_it(run):
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")])
    mean, _ = evaluation.evaluate_policy(run.policy(0), env, n_eval_episodes=2, warn=False)
    assert np.isfinite(mean)


def test_anything_else_is_refused(tmp_path):
    for name in ("notes", "log.csv", "model_100.pt"):
        (tmp_path / name).write_text("no policy")
    (tmp_path / "empty").mkdir()
    (tmp_path / "several" / "plain").mkdir(parents=True)
    (tmp_path / "several" / "plain" / "manifest.json").write_text("{}")
    cases = {
        "none": "none does not exist: give a run's folder, a policy file, a Stable-Baselines3 zip "
        "or an exported file",
        "notes": "not a safetensors file .*: "
        "give a file from a run's policies/, a Stable-Baselines3 .zip or an .onnx",
        "log.csv": "a .csv file holds none: .*; a log of actions is measured by damper.metrics",
        "model_100.pt": "a .pt file of torch holds weights alone: load them into their",
        "empty": "is not a run: it has no manifest.json",
        "several": "is not a run: it has no manifest.json; give one of the runs in it: plain",
    }
    for name, told in cases.items():
        with pytest.raises(DamperError, match=told):
            damper.load(Path(tmp_path / name))


@pytest.mark.parametrize("name", ["none.zip", "none.onnx", "none.pt2", "none.safetensors"])
def test_a_missing_file_is_told_before_a_missing_extra(monkeypatch, tmp_path, name):
    for package in ("stable_baselines3", "damper.sb3", "damper.sb3.archive", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DamperError, match=f"{name} does not exist: give a run's folder"):
        damper.load(tmp_path / name)
