"""What a contract says of an SB3 zip: how smoothly it acts, its origin and versions."""

from __future__ import annotations

import errno
import json
import os
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import damper
from damper.cli import main
from damper.errors import DamperError
from damper.export import export
from damper.policies.filters import LowPass
from damper.policies.opening import open_policy
from damper.protocols import EVALUATION_SEEDS

pytest.importorskip("stable_baselines3")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import stable_baselines3
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from damper.sb3 import SAC, TD3
from damper.sb3.archive import saved_versions
from tests import tiny
from tests.wrappers import Flip, Silent

MEASURES = ("return", "sm", "mean_change")


def save(path: Path, kind=stable_baselines3.TD3, env="Pendulum-v1"):
    model = kind("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, buffer_size=100, seed=3)
    model.save(path)
    return model


def pendulum():
    return gymnasium.make("Pendulum-v1")


def with_text(path: Path, texts: dict[str, bytes | None]) -> Path:
    """The same zip with some files exchanged, or left out."""
    changed = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            content = texts.get(name, source.read(name))
            if content is not None:
                target.writestr(name, content)
    return changed


@pytest.mark.parametrize("trust", [False, True])
def test_smoothness_is_measured_where_the_environment_is_named(trust, tmp_path):
    model = save(tmp_path / "model.zip")
    contract = export(
        tmp_path / "model.zip", tmp_path / "p.onnx", env="Pendulum-v1", trust=trust, episodes=2
    )
    found = contract["smoothness"]
    by_hand = damper.evaluate(
        lambda obs: model.predict(obs, deterministic=True)[0], "Pendulum-v1", 2
    )
    expected = by_hand.summary()["all"]
    assert (found["env"], found["episodes"], found["seeds"]) == (
        "Pendulum-v1",
        2,
        list(EVALUATION_SEEDS[:2]),
    )
    for name in MEASURES:
        assert found[name] == pytest.approx(expected[name]["mean"], rel=1e-3), name


def test_the_file_carries_what_lies_beside_it(tmp_path):
    save(tmp_path / "model.zip")
    contract = export(tmp_path / "model.zip", tmp_path / "p.onnx", env="Pendulum-v1", episodes=2)
    beside = json.loads((tmp_path / "p.onnx.json").read_text())
    opened = open_policy(tmp_path / "p.onnx")
    assert beside["smoothness"] == opened.smoothness == contract["smoothness"]
    assert opened.facts == beside["training"]
    again = damper.evaluate(opened.act, opened.env, seeds=opened.smoothness["seeds"]).summary()[
        "all"
    ]
    for name in MEASURES:
        assert opened.smoothness[name] == pytest.approx(again[name]["mean"], rel=1e-3), name


def test_nothing_is_said_of_what_was_not_measured(tmp_path, capsys):
    save(tmp_path / "model.zip")
    main(["export", str(tmp_path / "model.zip"), "--to", str(tmp_path / "p.onnx")])
    assert "smoothness in the contract is null, because" in (told := capsys.readouterr().out)
    assert "records no environment that fits: name one with --env" in told
    assert json.loads((tmp_path / "p.onnx.json").read_text())["smoothness"] is None
    named = ["--env", "Pendulum-v1", "--episodes"]
    main(["export", str(tmp_path / "model.zip"), "--to", str(tmp_path / "p.onnx"), *named, "2"])
    assert "2 episodes of Pendulum-v1: return -" in capsys.readouterr().out
    assert json.loads((tmp_path / "p.onnx.json").read_text())["smoothness"]["episodes"] == 2
    main(["export", str(tmp_path / "model.zip"), "--to", str(tmp_path / "p.onnx"), *named, "0"])
    assert "is null, because of --episodes 0" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(
            ["export", str(tmp_path / "model.zip"), "--to", str(tmp_path / "p.onnx"), *named, "-1"]
        )
    assert "episodes must be at least 0, but -1 was given" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [TD3, SAC])
@pytest.mark.parametrize("trust", [False, True])
def test_our_zips_name_their_environment(kind, trust, tmp_path):
    save(tmp_path / "model.zip", kind)
    contract = export(tmp_path / "model.zip", tmp_path / "p.onnx", trust=trust, episodes=1)
    assert contract["env"] == contract["smoothness"]["env"] == "Pendulum-v1"
    kind.load(tmp_path / "model.zip").save(tmp_path / "again.zip")
    assert open_policy(tmp_path / "again.zip").env.id == "Pendulum-v1"
    getattr(stable_baselines3, kind.__name__).load(tmp_path / "model.zip", device="cpu")


@pytest.mark.parametrize("trust", [False, True])
def test_a_zip_without_its_statistics_is_refused(trust, tmp_path):
    """Its policy would see other observations than it was trained on."""
    env = VecNormalize(DummyVecEnv([pendulum]))
    save(tmp_path / "model.zip", TD3, env)
    TD3.load(tmp_path / "model.zip", device="cpu").save(tmp_path / "again.zip")
    for name in ("model.zip", "again.zip"):
        with pytest.raises(
            DamperError, match=rf"{name} was trained on observations that VecNormalize normalised"
        ):
            export(tmp_path / name, tmp_path / "p.onnx", trust=trust)
        with pytest.raises(
            DamperError, match=rf"{name} was trained on observations that VecNormalize normalised"
        ):
            damper.evaluate(tmp_path / name, "Pendulum-v1", trust=trust)
        contract = export(
            tmp_path / name, tmp_path / "p.onnx", vecnormalize=env, trust=trust, episodes=1
        )
        assert contract["observation"]["normalisation"] == "inside"
        assert contract["env"] == contract["smoothness"]["env"] == "Pendulum-v1"
    with pytest.raises(
        DamperError, match="the model was trained on observations that VecNormalize normalised"
    ):
        export(TD3.load(tmp_path / "model.zip", device="cpu"), tmp_path / "q.onnx")


def test_a_model_trained_with_statistics_needs_them_in_any_environment(tmp_path):
    env = VecNormalize(DummyVecEnv([pendulum]))
    model = TD3("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, buffer_size=100, seed=3).learn(
        20
    )
    model.save(tmp_path / "model")
    expected = damper.evaluate(model, episodes=1).summary()
    elsewhere = TD3.load(tmp_path / "model", env=pendulum())
    elsewhere.save(tmp_path / "again")
    for source in (elsewhere, tmp_path / "again"):
        with pytest.raises(
            DamperError, match="was trained on observations that VecNormalize normalised"
        ):
            damper.evaluate(source, episodes=1)
        assert damper.evaluate(source, episodes=1, vecnormalize=env).summary()["all"][
            "return"
        ] == pytest.approx(expected["all"]["return"], rel=1e-5, nan_ok=True)
    with pytest.raises(
        DamperError,
        match="VecNormalize must hold the statistics of training, but has seen no observ",
    ):
        damper.evaluate(
            TD3.load(tmp_path / "model", env=VecNormalize(DummyVecEnv([pendulum]))), episodes=1
        )
    elsewhere.learn(1)  # from here on it learns from observations as they are
    damper.evaluate(elsewhere, episodes=1)


def test_rewards_alone_need_no_statistics(tmp_path):
    save(tmp_path / "model.zip", TD3, VecNormalize(DummyVecEnv([pendulum]), norm_obs=False))
    assert (
        export(tmp_path / "model.zip", tmp_path / "p.onnx", episodes=1)["smoothness"]["env"]
        == "Pendulum-v1"
    )


def test_an_environment_that_is_not_here_leaves_it_open(tmp_path, capsys):
    save(tmp_path / "model.zip", TD3)
    data = json.loads(zipfile.ZipFile(tmp_path / "model.zip").read("data"))
    reasons = {
        "Nowhere-v0": "Nowhere-v0 cannot be made here",
        "MountainCarContinuous-v0": "no environment that fits",
    }
    for name, why in reasons.items():  # not installed; of other sizes
        text = json.dumps(
            {**data, "env_spec": None, "env_id": name}
        ).encode()  # zips from before have the id alone
        path = with_text(tmp_path / "model.zip", {"data": text})
        main(["export", str(path), "--to", str(tmp_path / "p.onnx")])
        assert f"{why}: name one with --env" in capsys.readouterr().out
        assert json.loads((tmp_path / "p.onnx.json").read_text())["smoothness"] is None


def frames():
    return gymnasium.wrappers.FlattenObservation(
        gymnasium.wrappers.FrameStackObservation(pendulum(), 2)
    )


DESCRIBED = {
    "arguments": lambda: gymnasium.make("Pendulum-v1", g=1.0),
    "time limit": lambda: gymnasium.make("Pendulum-v1", max_episode_steps=50),
    "rescaled": lambda: gymnasium.wrappers.RescaleAction(pendulum(), -1, 1),
    "flipped": lambda: Flip(pendulum(), by=-1.0),
    "frames": frames,
}


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("name", DESCRIBED)
def test_a_policy_is_measured_in_exactly_the_environment_it_was_trained_in(name, trust, tmp_path):
    make = DESCRIBED[name]
    save(tmp_path / "model.zip", TD3, make())
    contract = export(tmp_path / "model.zip", tmp_path / "p.onnx", trust=trust, episodes=1)
    opened = open_policy(tmp_path / "model.zip", trust=trust)
    expected = damper.evaluate(opened.act, make, episodes=1).records()[0]
    for found in (
        contract["smoothness"],
        damper.evaluate(tmp_path / "model.zip", episodes=1, trust=trust).records()[0],
        damper.evaluate(tmp_path / "p.onnx", episodes=1).records()[0],
    ):
        assert found["return"] == pytest.approx(expected["return"], rel=1e-3)
        assert found["length"] == expected["length"]
    bare = gymnasium.make("Pendulum-v1").spec
    assert EnvSpec.from_json(contract["env_spec"]) != bare


@pytest.mark.parametrize("trust", [False, True])
def test_a_zip_s_actions_are_not_rescaled_to_another_environment_s_range(trust, tmp_path, caplog):
    env = gymnasium.wrappers.RescaleAction(pendulum(), np.float32(-1), np.float32(1))
    model = save(tmp_path / "model.zip", env=env)
    obs = np.linspace(-1, 1, 30, dtype=np.float32).reshape(10, 3)
    named: dict = {"env": "Pendulum-v1", "trust": trust, "episodes": 1}
    contract = export(tmp_path / "model.zip", tmp_path / "p.onnx", **named)
    assert contract["action"]["high"] == [1.0]
    assert (
        caplog.text.count(
            "actions go from [-1.0] to [1.0], but Pendulum-v1 takes actions from [-2.0] to [2.0]"
        )
        == 1
    )
    exported, expected = (
        open_policy(tmp_path / "p.onnx").act(obs),
        model.predict(obs, deterministic=True)[0],
    )
    np.testing.assert_allclose(exported, expected, atol=1e-5)
    own, theirs = (
        damper.evaluate(source, **named).episodes[0][0].raw
        for source in (tmp_path / "model.zip", model)
    )
    np.testing.assert_allclose(own, theirs, atol=1e-3)
    assert caplog.text.count("not rescaled") == 3


@pytest.mark.parametrize("still", [False, True])
def test_a_policy_that_holds_one_action_is_told(still, tmp_path, caplog):
    run = tiny.train(tmp_path / "run", seeds=(3,), steps=60)
    policy = run.policy()
    if still:
        policy.flat_params.zero_()
        policy.save(run.policy_path(0))
    for episodes in (1, 2):  # rolled out; then read from the run's own evaluation
        caplog.clear()
        contract = export(run, tmp_path / "p.onnx", episodes=1)
        assert (
            contract["smoothness"]["constant_action"] is still
            and contract["smoothness"]["episodes"] == episodes
        )
        assert (
            "the agent of damper, seed 3 holds one action throughout each episode" in caplog.text
        ) is still
        damper.evaluate(run, episodes=2).save(run.path / "evaluation")


UNDESCRIBED = {
    "Silent": lambda: Silent(pendulum()),
    "VecFrameStack": lambda: VecFrameStack(DummyVecEnv([pendulum]), 1),
}


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("name", UNDESCRIBED)
def test_what_cannot_be_made_again_is_not_measured(name, trust, tmp_path, capsys):
    model = save(tmp_path / "model.zip", SAC, UNDESCRIBED[name]())
    words = ["--trust"] if trust else []
    main(["export", str(tmp_path / "model.zip"), "--to", str(tmp_path / "p.onnx"), *words])
    assert f"because what {name} (" in capsys.readouterr().out
    contract = json.loads((tmp_path / "p.onnx.json").read_text())
    assert (
        contract["env"] is None and contract["smoothness"] is None and name in contract["env_spec"]
    )
    for source in (tmp_path / "model.zip", tmp_path / "p.onnx", model):
        with pytest.raises(DamperError, match=rf"env must be given, .*does not say what {name} \("):
            damper.evaluate(source, episodes=1, trust=trust)
        assert damper.evaluate(source, "Pendulum-v1", episodes=1, trust=trust).env == "Pendulum-v1"


def test_a_policy_without_the_statistics_it_was_trained_with_is_not_exported(tmp_path):
    model = save(tmp_path / "model.zip", SAC, gymnasium.wrappers.NormalizeObservation(pendulum()))
    for source in (tmp_path / "model.zip", model):
        with pytest.raises(
            DamperError, match="NormalizeObservation normalised, whose statistics are in no file"
        ):
            export(source, tmp_path / "p.onnx")
        with pytest.raises(
            DamperError, match=r"env must be given, .*does not say what NormalizeObservation \("
        ):
            damper.evaluate(source, episodes=1)
    assert not list(tmp_path.glob("p.onnx*"))


def test_a_run_in_a_callable_s_environment_is_not_measured_elsewhere(tmp_path):
    small = {
        "steps": 55,
        "net_arch": (8,),
        "batch_size": 8,
        "learning_starts": 50,
        "progress": False,
    }
    make = DESCRIBED["time limit"]
    run = damper.train(make, out=tmp_path / "run", **small)
    contract = export(run, tmp_path / "p.onnx")
    assert contract["env"] is None and contract["smoothness"] is None
    assert export(run, tmp_path / "p.onnx", env=make, episodes=1)["smoothness"]["length"] == 50


def test_an_evaluation_beside_the_run_counts_only_in_the_same_environment(tmp_path):
    small = {
        "steps": 55,
        "net_arch": (8,),
        "batch_size": 8,
        "learning_starts": 50,
        "progress": False,
    }
    run = damper.train("Pendulum-v1", out=tmp_path / "run", **small)
    damper.evaluate(run, DESCRIBED["time limit"], episodes=2).save(run.path / "evaluation")
    assert export(run, tmp_path / "p.onnx", episodes=1)["smoothness"]["length"] == 200
    damper.evaluate(run, episodes=2, filter=LowPass(0.1)).save(run.path / "evaluation")
    assert export(run, tmp_path / "p.onnx", episodes=1)["smoothness"]["episodes"] == 1, (
        "no filter is in the file"
    )
    damper.evaluate(run, episodes=2).save(run.path / "evaluation")
    assert export(run, tmp_path / "p.onnx", episodes=1)["smoothness"]["episodes"] == 2


def test_an_evaluation_from_before_the_run_went_on_does_not_count(tmp_path):
    settings = {"seeds": (3,), "keep_checkpoint": True, "out": tmp_path / "run"}
    run = tiny.train(steps=60, **settings)
    damper.evaluate(run, episodes=2).save(run.path / "evaluation")
    assert export(run, tmp_path / "p.onnx", episodes=1)["smoothness"]["episodes"] == 2
    run = tiny.train(steps=120, **settings)
    measured = export(run, tmp_path / "p.onnx", episodes=1)["smoothness"]
    assert measured["episodes"] == 1
    again = damper.evaluate(run, episodes=1).records()[0]
    assert measured["return"] == pytest.approx(again["return"], rel=1e-6)


@pytest.mark.parametrize("trust", [False, True])
def test_settings_that_nobody_gave_are_in_the_contract(trust, tmp_path):
    save(tmp_path / "model.zip", TD3)
    contract = export(
        tmp_path / "model.zip", tmp_path / "p.onnx", check=False, trust=trust, episodes=0
    )
    assert contract["training"]["settings"]["eta"] == 1.0


@pytest.mark.parametrize("trust", [False, True])
def test_versions_of_saving_and_of_exporting(trust, tmp_path):
    save(tmp_path / "model.zip")
    old = (
        b"- OS: Linux # 1\n- Python: 3.8.1\n- Stable-Baselines3: 1.6.0\n"
        b"- PyTorch: 1.13.1+cu117\n- GPU Enabled: True\n"
    )
    path = with_text(
        tmp_path / "model.zip", {"system_info.txt": old, "_stable_baselines3_version": b"1.6.2"}
    )
    contract = export(path, tmp_path / "p.onnx", trust=trust)
    expected = {"python": "3.8.1", "stable-baselines3": "1.6.2", "torch": "1.13.1+cu117"}
    assert contract["training"]["versions"] == expected
    assert contract["versions"]["torch"] == torch.__version__
    assert contract["versions"]["stable-baselines3"] == stable_baselines3.__version__


def test_versions_are_text_and_may_be_missing(tmp_path):
    save(tmp_path / "model.zip")
    assert saved_versions(tmp_path / "model.zip")["gymnasium"] == gymnasium.__version__
    names = ("system_info.txt", "_stable_baselines3_version")
    assert saved_versions(with_text(tmp_path / "model.zip", dict.fromkeys(names))) == {}
    odd = with_text(
        tmp_path / "model.zip",
        {names[0]: b"- PyTorch: <b>2</b>\n\xff\xfe- Python", names[1]: b"\x80\x04."},
    )
    assert saved_versions(odd) == {}


def test_a_zip_may_be_named_without_its_ending(tmp_path, capsys):
    """As SB3's ``load`` takes it."""
    save(tmp_path / "model.v1.zip")
    main(
        [
            "export",
            str(tmp_path / "model.v1"),
            "--to",
            str(tmp_path / "p.onnx"),
            "--env",
            "Pendulum-v1",
        ]
    )
    main(["evaluate", str(tmp_path / "model.v1"), "--env", "Pendulum-v1", "--episodes", "1"])
    assert (tmp_path / "p.onnx").is_file() and (
        tmp_path / "model.v1.zip-evaluation-Pendulum-v1" / "episodes.json"
    ).is_file()
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", str(tmp_path / "other"), "--env", "Pendulum-v1"])
    assert "other" in capsys.readouterr().err


def test_a_folder_wins_over_a_zip_of_its_name(tmp_path):
    save(tmp_path / "model.zip")
    (tmp_path / "model").mkdir()
    with pytest.raises(DamperError):  # an empty folder is no run
        open_policy(tmp_path / "model")


def test_a_failed_write_leaves_the_old_pair(tmp_path, monkeypatch):
    save(tmp_path / "model.zip")
    export(tmp_path / "model.zip", tmp_path / "p.onnx")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(path, value):
        raise DamperError("the disk is full")

    monkeypatch.setattr("damper.export.write_json", full)
    with pytest.raises(DamperError, match="the disk is full"):
        export(tmp_path / "model.zip", tmp_path / "p.onnx", env="Pendulum-v1", episodes=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("fails", ["policy", "contract"])
def test_a_failed_rename_leaves_no_temporary_file(fails, tmp_path, monkeypatch):
    save(tmp_path / "model.zip")
    replace = os.replace

    def refuse(source, target):
        if Path(target) == tmp_path / {"policy": "p.onnx", "contract": "p.onnx.json"}[fails]:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(DamperError, match=r"p\.onnx could not be written"):
        export(tmp_path / "model.zip", tmp_path / "p.onnx")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"model.zip"} | ({"p.onnx"} if fails == "contract" else set())
