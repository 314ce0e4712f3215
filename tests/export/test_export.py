"""Exported policies are the original's: from runs, policies, models and zips."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import damper
from damper.activations import (
    ACTIVATIONS,
    EXPORTABLE,
    EXPORTABLE_NAME_BY_MODULE,
    ExportableActivation,
    known_modules,
)
from damper.cli import main
from damper.errors import DamperError
from damper.export import export
from damper.export.check import check_agreement, limits, observations
from damper.export.files import OPSET, write
from damper.export.network import Module, Network, build
from damper.methods import find_method
from damper.policies.exported import open_file
from damper.policies.loaded import LinearActor, LoadedPolicy
from damper.policies.normaliser import Normaliser
from damper.policies.opening import open_policy
from damper.policies.policy import Policy

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
FORMATS = pytest.mark.parametrize("ending", ["onnx", "pt2"])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two agents, trained for a moment and evaluated."""
    out = tmp_path_factory.mktemp("run") / "pendulum"
    settings = {"learning_starts": 50, "net_arch": (16, 16), "batch_size": 16}
    found = damper.train(
        "Pendulum-v1", "td3", seeds=2, steps=200, out=out, progress=False, **settings
    )
    damper.evaluate(found, episodes=2).save(out / "evaluation")
    return found


def network(layers, activation, low, high, normaliser=None, **actor) -> Network:
    """The operations of an actor with these layers."""
    linear = LinearActor(layers, activation, **actor)
    return build(LoadedPolicy(len, actor=linear, low=low, high=high, normaliser=normaliser))


def random_policy(run, activation: str, backbone: str = "td3") -> Policy:
    """Weights large enough for tanh to bend and to saturate."""
    policy = run.policy(0)
    info = {**vars(policy.info), "activation": activation, "low": [-2.0], "high": [0.5]}
    row = torch.randn(policy.flat_params.shape, generator=torch.Generator().manual_seed(1)) * 0.5
    return Policy(type(policy.info)(**info), row)


@FORMATS
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_files_give_the_originals_actions(run, activation, ending, tmp_path):
    policy = random_policy(run, activation)
    contract = export(policy, tmp_path / f"policy.{ending}")
    act, inside = open_file(tmp_path / f"policy.{ending}")
    obs = np.random.default_rng(3).normal(size=(3000, 3)).astype(np.float32)
    assert np.abs(act(obs) - policy(obs)).max() < 1e-5
    assert act(obs[:1]).shape == (1, 1) and act(obs).dtype == np.float32
    assert act(obs).min() >= -2.0 and act(obs).max() <= 0.5 and np.ptp(act(obs)) > 2.0
    assert contract["check"]["largest_difference"] < 1e-5
    assert inside["env"] == "Pendulum-v1"


@pytest.mark.parametrize("activation", [*EXPORTABLE, "leaky_relu"])
def test_an_activation_is_written_by_onnx_s_own_name(activation, tmp_path, monkeypatch):
    leaky = ExportableActivation(
        nn.LeakyReLU, nn.functional.leaky_relu, "LeakyRelu"
    )  # a name that is not made of ours
    monkeypatch.setitem(EXPORTABLE, "leaky_relu", leaky)
    eye = (np.eye(3), np.zeros(3))
    operations = network([eye, eye], activation, -np.inf, np.inf, squash=False)
    write(operations, tmp_path / "policy.onnx", {})
    z = np.linspace(-3, 3, 30, dtype=np.float32).reshape(10, 3)
    expected = EXPORTABLE[activation].function(torch.from_numpy(z)).numpy()
    np.testing.assert_allclose(open_file(tmp_path / "policy.onnx")[0](z), expected, atol=1e-6)


def test_the_page_lists_the_operations_and_activations_of_every_file(tmp_path):
    seen = set()
    layers, statistics = [(np.eye(3), np.zeros(3))] * 2, Normaliser(np.zeros(3), np.ones(3), 10.0)
    for activation, squash in itertools.product(EXPORTABLE, (True, False)):
        operations = network(layers, activation, -1, 1, statistics, squash=squash, clip_mean=2.0)
        write(operations, tmp_path / "policy.onnx", {})
        seen |= {node.op_type for node in onnx.load(tmp_path / "policy.onnx").graph.node}
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    listed = re.search(rf"Only basic operations \(([^)]+)\), opset {OPSET}\.", page)
    assert listed is not None and sorted(listed[1].split(", ")) == sorted(seen)
    assert f"linear layers with {known_modules(EXPORTABLE_NAME_BY_MODULE)} " in page


def test_the_file_alone_drives_the_environment_alike(run, tmp_path):
    """What a user on a robot does: nothing but the runtime and the file."""
    export(run, tmp_path / "policy.onnx", agent=1)
    original = damper.evaluate(run.policy(1), episodes=2)
    session = onnxruntime.InferenceSession(
        str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"]
    )
    env = gymnasium.make("Pendulum-v1")
    for episode in original.episodes[0]:
        obs, _ = env.reset(seed=episode.seed)
        total, actions, over = 0.0, [], False
        while not over:
            action = session.run(None, {"observation": obs[None].astype(np.float32)})[0][0]
            obs, reward, terminated, truncated, _ = env.step(action)
            total, over = total + reward, terminated or truncated
            actions.append(action)
        assert total == pytest.approx(episode.total, rel=1e-3)
        assert damper.smoothness(np.array(actions)) == pytest.approx(
            damper.smoothness(episode.executed), rel=1e-3, abs=1e-5
        )
    env.close()


def test_the_contract_tells_what_a_user_must_know(run, tmp_path):
    export(run.path, tmp_path / "policy.onnx", agent=1)
    contract = json.loads((tmp_path / "policy.onnx.json").read_text())
    assert contract["file"] == "policy.onnx"
    assert contract["observation"]["shape"] == ["batch", 3] and contract["observation"]["high"] == [
        1.0,
        1.0,
        8.0,
    ]
    assert contract["action"]["low"] == [-2.0] and contract["action"]["high"] == [2.0]
    assert contract["control_period_seconds"] == 0.05
    assert contract["training"]["seed"] == 1 and contract["training"]["method"] == "damper"
    assert contract["smoothness"]["episodes"] == 2 and contract["smoothness"]["sm"] > 0
    assert contract["versions"]["torch"] == torch.__version__


def test_a_wrong_file_is_caught_and_leaves_the_good_one(run, tmp_path, monkeypatch):
    export(run, tmp_path / "old.onnx", agent=0)
    good = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    wrong = build(open_policy(run, agent=1))
    monkeypatch.setattr("damper.export.build", lambda policy: wrong)
    for name in ("old.onnx", "new.onnx"):
        with pytest.raises(
            DamperError,
            match=f"{name} must reproduce the original's actions, but differs by .* untouched",
        ):
            export(run, tmp_path / name, agent=0)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == good
    export(run, tmp_path / "old.onnx", agent=0, check=False)
    assert (tmp_path / "old.onnx").read_bytes() != good["old.onnx"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diverged_policy_is_refused(run, value, tmp_path):
    policy = run.policy(0)
    policy.flat_params[5] = value
    for check in (True, False):
        with pytest.raises(
            DamperError, match="weights must be finite, but some are not: its training diverged"
        ):
            export(policy, tmp_path / "policy.onnx", check=check, episodes=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("activation", "bound", "squash"),
    [("silu", 1.0, True), ("relu", 1.0, False), ("tanh", np.inf, False)],
)
def test_large_sums_are_exported_and_their_mistakes_caught(
    run, activation, bound, squash, tmp_path
):
    """Sums of thousands: rounding alone exceeds 1e-5, a weight wrong by 0.1 % much more so."""
    generator, sizes, high = torch.Generator().manual_seed(0), (105, 400, 300, 8), np.full(8, bound)
    uniform = [
        torch.rand(a + 1, b, generator=generator) * 2 - 1 for a, b in itertools.pairwise(sizes)
    ]
    layers = [((10.0 * part[:-1] / len(part) ** 0.5).numpy(), part[-1].numpy()) for part in uniform]
    operations = network(layers, activation, -high, high, squash=squash)
    exact = Module(operations).double()

    def act(obs):
        with torch.no_grad():
            return exact(torch.as_tensor(obs, dtype=torch.float64)).numpy()

    source = replace(open_policy(run), act=act, env=None, obs_ranges=None, low=-high, high=high)
    path = tmp_path / "policy.onnx"
    write(operations, path, {})
    assert check_agreement(source, operations, path, path)["largest_difference"] > 1e-5
    layers[-1][0][0] *= 1.001
    write(network(layers, activation, -high, high, squash=squash), path, {})
    with pytest.raises(DamperError, match="must reproduce the original's actions"):
        check_agreement(source, operations, path, path)


def test_what_cannot_move_an_action_is_no_excuse_for_another(run):
    """Behind a saturated tanh or a cut, errors of large sums vanish, and the limit stays 1e-5."""
    for squash in (True, False):
        layers = [(np.full((3, 16), 1e4), np.zeros(16)), (np.full((16, 1), 1e4), np.zeros(1))]
        operations = network(layers, "relu", [-1.0], [1.0], squash=squash)
        source = replace(
            open_policy(run), env=None, obs_ranges=None, low=-np.ones(1), high=np.ones(1)
        )
        assert (limits(source, operations, np.ones((5, 3), np.float32)) == 1e-5).all()
    shifted = network([(np.eye(3)[:, :1], np.zeros(1))], "relu", [1000.0], [1001.0])
    source = replace(source, low=np.array([1000.0]), high=np.array([1001.0]))
    assert 6.1e-5 < limits(source, shifted, np.zeros((1, 3), np.float32)).item() < 1e-3, (
        "float32's digits there"
    )


def test_a_file_that_gives_no_numbers_is_caught(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "damper.export.check.open_file",
        lambda path: (lambda obs: np.full((len(obs), 1), np.nan), {}),
    )
    with pytest.raises(
        DamperError, match="must reproduce the original's actions, but differs by nan"
    ):
        export(run, tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_programs_of_pytorch_are_opened_only_if_trusted(run, tmp_path):
    export(run, tmp_path / "policy.pt2")
    with pytest.raises(DamperError, match=r"may hold pickles, .* add --trust"):
        open_policy(tmp_path / "policy.pt2")
    assert open_policy(tmp_path / "policy.pt2", trust=True).env.id == "Pendulum-v1"


def test_torch_loads_a_program_without_complaint(run, tmp_path, caplog):
    export(run, tmp_path / "policy.pt2")
    program = torch.export.load(tmp_path / "policy.pt2").module()
    assert program(torch.zeros(4, 3)).shape == (4, 1)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    with pytest.raises(DamperError, match=r"must end in .onnx or .pt2, but is .*policy.pt'"):
        export(run, tmp_path / "policy.pt")  # torch takes this ending for another format


def test_normalisation_keeps_its_digits_far_from_zero():
    mean, scale = np.array([1e4, 0.0, -3.0]), 1.0 / np.array([0.1, 1.0, 2.0])
    normaliser = Normaliser(mean, scale, 10.0)
    generator = np.random.default_rng(0)
    layers = [
        (generator.normal(size=(3, 8)), generator.normal(size=8)),
        (generator.normal(size=(8, 1)), np.zeros(1)),
    ]
    module = Module(network(layers, "tanh", [-1.0], [1.0], normaliser=normaliser))
    plain = Module(network(layers, "tanh", [-1.0], [1.0]))
    obs = (mean + generator.normal(size=(500, 3)) / scale).astype(np.float32)
    with torch.no_grad():
        inside, outside = (
            module(torch.from_numpy(obs)),
            plain(torch.from_numpy(normaliser(obs.astype(np.float64)))),
        )
    assert (inside - outside).abs().max() < 1e-5


def test_observations_to_compare_on_are_varied(run):
    obs = observations(open_policy(run), 3)
    assert len(obs) == 4096 and np.abs(obs).max() > 20 and np.median(np.abs(obs)) < 5


# --- Stable-Baselines3 ----------------------------------------------------------------------


@pytest.fixture
def sb3():
    return pytest.importorskip("damper.sb3")


def small(kind, env="Pendulum-v1", **settings):
    kwargs = {"net_arch": [16, 16], **settings.pop("policy_kwargs", {})}
    return kind(
        "MlpPolicy",
        env,
        policy_kwargs=kwargs,
        buffer_size=500,
        learning_starts=30,
        seed=0,
        **settings,
    )


@FORMATS
def test_vecnormalize_goes_inside(sb3, ending, tmp_path):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), clip_obs=2.0)
    model = small(sb3.SAC, env).learn(60)
    export(model, tmp_path / f"own.{ending}")
    obs = np.random.default_rng(0).uniform([-1, -1, -8], [1, 1, 8], (2000, 3)).astype(np.float32)
    expected = model.predict(env.normalize_obs(obs), deterministic=True)[0]
    assert np.abs(open_file(tmp_path / f"own.{ending}")[0](obs) - expected).max() < 1e-5
    model.save(tmp_path / "model.zip")
    env.save(str(tmp_path / "statistics.pkl"))
    with pytest.raises(DamperError, match=r"statistics.pkl is a pickle, .* add --trust"):
        export(
            tmp_path / "model.zip", tmp_path / "no.onnx", vecnormalize=tmp_path / "statistics.pkl"
        )
    export(
        tmp_path / "model.zip",
        tmp_path / "zip.onnx",
        vecnormalize=tmp_path / "statistics.pkl",
        trust=True,
    )
    assert np.abs(open_file(tmp_path / "zip.onnx")[0](obs) - expected).max() < 1e-5


def test_gsde_keeps_its_bound(sb3, tmp_path):
    model = small(sb3.SAC, use_sde=True, policy_kwargs={"clip_mean": 0.3})
    contract = export(model, tmp_path / "policy.onnx")
    assert contract["check"]["largest_difference"] < 1e-5
    act, _ = open_file(tmp_path / "policy.onnx")
    assert np.abs(act(100.0 * np.ones((1, 3), np.float32))) <= 2.0 * np.tanh(0.3) + 1e-6


def test_what_cannot_be_exported_is_refused(sb3, run, tmp_path):
    with pytest.raises(DamperError, match=r"must end in .onnx or .pt2"):
        export(run, tmp_path / "policy.h5")
    with pytest.raises(DamperError, match="activation_fn must be"):
        export(
            small(sb3.TD3, policy_kwargs={"activation_fn": torch.nn.Softsign}),
            tmp_path / "policy.onnx",
        )
    export(run, tmp_path / "policy.onnx")
    with pytest.raises(DamperError, match="is already an exported file"):
        export(tmp_path / "policy.onnx", tmp_path / "again.onnx")
    with pytest.raises(DamperError, match="agent must be 0 to 1"):
        export(run, tmp_path / "policy.onnx", agent=5)
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(DamperError, match="damaged or not an ONNX file"):
        open_file(tmp_path / "bad.onnx")


def test_what_does_not_fit_the_policy_is_refused(sb3, run, tmp_path):
    """Another environment, statistics of another size, and files that hold no statistics."""
    from damper.sb3.convert import check_statistics

    small(sb3.TD3).save(tmp_path / "model.zip")
    export(run, tmp_path / "policy.onnx")
    with pytest.raises(
        DamperError,
        match=r"3 observations and 1 actions, but 'MountainCarContinuous-v0' has 2 and 1",
    ):
        export(tmp_path / "model.zip", tmp_path / "no.onnx", env="MountainCarContinuous-v0")
    with pytest.raises(
        DamperError, match=r"takes observations of 3 numbers, but the environment gives 2"
    ):
        open_file(tmp_path / "policy.onnx")[0](np.zeros((1, 2)))
    with pytest.raises(DamperError, match="statistics of the policy's 3 observations, but holds 2"):
        check_statistics(Normaliser(np.zeros(2), np.ones(2), 1.0), 3, 0)
    (tmp_path / "text.pkl").write_text("no pickle")
    (tmp_path / "list.pkl").write_bytes(pickle.dumps([1]))
    for name, why in (
        ("none.pkl", "does not exist"),
        ("text.pkl", "cannot be unpickled"),
        ("list.pkl", "but is a list"),
    ):
        with pytest.raises(DamperError, match=why):
            export(
                tmp_path / "model.zip",
                tmp_path / "no.onnx",
                vecnormalize=tmp_path / name,
                trust=True,
            )


class Extractor(torch.nn.Sequential):
    """A features extractor of the user's own."""

    features_dim = 4

    def __init__(self, space):
        super().__init__(torch.nn.Linear(space.shape[0], 4), torch.nn.ReLU())


def test_a_trusted_zip_acts_even_if_it_cannot_be_exported(sb3, tmp_path):
    model = small(sb3.SAC, policy_kwargs={"features_extractor_class": Extractor})
    model.save(tmp_path / "model.zip")
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    opened = open_policy(tmp_path / "model.zip", trust=True)
    assert np.array_equal(opened.act(obs), model.predict(obs, deterministic=True)[0])
    with pytest.raises(
        DamperError, match="without a features extractor, but is Actor on Extractor"
    ):
        export(tmp_path / "model.zip", tmp_path / "no.onnx", trust=True)


def test_no_hidden_layers(sb3, tmp_path):
    model = small(sb3.SAC, policy_kwargs={"net_arch": []})
    assert export(model, tmp_path / "policy.onnx")["check"]["largest_difference"] < 1e-5


@pytest.mark.parametrize("trust", [False, True])
def test_the_contract_names_method_and_settings_of_a_zip(sb3, trust, tmp_path):
    """A method of the user's own is pickled, and one with a memory is not SB3's to load."""

    def sum_up(primary, auxiliary, *, cap=1.0):
        return primary + cap * auxiliary

    for method, settings in (
        ("sum_up", {"cap": 0.5}),
        ("asap", {"lambda_T": 0.1}),
        ("metabalance", {}),
        ("damper", {"eta": np.float64(0.5)}),
    ):
        given = {"rule": sum_up} if method == "sum_up" else {"method": method}
        model = small(sb3.SAC, **given, **settings)
        model.save(tmp_path / "model.zip")
        training = export(tmp_path / "model.zip", tmp_path / "policy.onnx", trust=trust)["training"]
        assert training["method"] == method
        assert training["settings"] == find_method(model.method).settings() | settings, (
            "defaults are told too"
        )


def test_without_the_extra_a_sentence_says_so(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(DamperError, match=r'ONNX files need onnx: pip install "damper-rl\[onnx\]"'):
        export(run, tmp_path / "policy.onnx")


# --- the command ----------------------------------------------------------------------------


def records(folder: Path):
    return json.loads((folder / "episodes.json").read_text())["episodes"]


def test_evaluate_anything(sb3, run, tmp_path, capsys):
    """An engine run, an SB3 zip and an ONNX file: one policy, one table."""
    target = small(sb3.TD3, policy_kwargs={"activation_fn": torch.nn.SiLU})
    sb3.to_sb3(run.policy(0), target)
    target.save(tmp_path / "model.zip")
    first = ["export", str(run.path), "--agent", "0", "--check"]
    main([*first, "--to", str(tmp_path / "policy.onnx")])
    assert "largest difference" in capsys.readouterr().out
    main(
        ["evaluate", str(run.policy_path(0)), "--episodes", "2", "--out", str(tmp_path / "policy")]
    )
    main(
        [
            "evaluate",
            str(tmp_path / "policy.onnx"),
            "--episodes",
            "2",
            "--out",
            str(tmp_path / "onnx"),
        ]
    )
    main(["evaluate", str(tmp_path / "model.zip"), "--env", "Pendulum-v1", "--episodes", "2"])
    expected = records(tmp_path / "policy")
    for folder in (tmp_path / "onnx", tmp_path / "model.zip-evaluation-Pendulum-v1"):
        assert (folder / "traces.png").is_file() and (folder / "traces.safetensors").is_file()
        for mine, other in zip(records(folder), expected, strict=True):
            assert mine["return"] == pytest.approx(other["return"], rel=1e-3)
            assert mine["sm"] == pytest.approx(other["sm"], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "arguments", "sentence"),
    [
        ({}, [], "does not record its environment"),
        ({"use_sde": True}, ["--env", "Pendulum-v1"], "add --trust"),
    ],
)
def test_evaluate_says_what_is_missing(sb3, settings, arguments, sentence, tmp_path, capsys):
    import stable_baselines3

    small(stable_baselines3.SAC, **settings).save(tmp_path / "model.zip")
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", str(tmp_path / "model.zip"), *arguments])
    assert sentence in capsys.readouterr().err
    if "trust" in sentence:
        main(["evaluate", str(tmp_path / "model.zip"), *arguments, "--trust", "--episodes", "1"])


@FORMATS
def test_what_no_export_wrote_is_replaced_only_by_force(run, ending, tmp_path, capsys):
    target = tmp_path / f"robot.{ending}"
    for place in (target, tmp_path / f"robot.{ending}.json"):
        place.write_text('{"arm": "left"}')
        with pytest.raises(
            DamperError, match=rf"{place.name} already exists, .* --force \(force=True\)"
        ):
            export(run, target)
        assert [path.name for path in tmp_path.iterdir()] == [
            place.name
        ] and place.read_text() == '{"arm": "left"}'
        place.unlink()
    target.write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["export", str(run.path), "--to", str(target)])
    assert "choose another name" in capsys.readouterr().err and target.read_text() == "mine"
    main(["export", str(run.path), "--to", str(target), "--force"])
    first = target.read_bytes()
    other = 1 - json.loads(Path(f"{target}.json").read_text())["training"]["agent"]
    export(run, target, agent=other)  # an export's own files need no force
    assert target.read_bytes() != first


def test_an_export_touches_no_neighbour(run, tmp_path):
    """Nor the contract of the same policy in another format."""
    (tmp_path / "robot.json").write_text('{"file": "robot.onnx"}')
    for ending in ("onnx", "pt2"):
        export(run, tmp_path / f"robot.{ending}")
    assert (tmp_path / "robot.json").read_text() == '{"file": "robot.onnx"}'
    for ending in ("onnx", "pt2"):
        assert (
            json.loads((tmp_path / f"robot.{ending}.json").read_text())["file"] == f"robot.{ending}"
        )


def test_a_place_that_cannot_be_written_is_told_in_one_sentence(run, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DamperError, match=r"to needs a folder, but .*file is a file"):
        export(run, tmp_path / "file" / "p.onnx")
