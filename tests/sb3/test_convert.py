"""Policies pass between engine and SB3, predicting the same; zips are read without unpickling."""

from __future__ import annotations

import json
import zipfile
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3 import A2C
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from damper.activations import ACTIVATIONS, known_modules
from damper.engine.data.random_streams import Streams
from damper.engine.networks.agent_networks import AgentNetworks, NetworkSizes
from damper.engine.networks.layout import Layout, weight_list
from damper.errors import DamperError
from damper.methods import METHODS
from damper.policies.policy import Policy, PolicyInfo
from damper.sb3 import from_sb3, to_sb3
from damper.sb3.archive import load_zip, read_zip
from damper.sb3.convert import env_spec
from tests.sb3.models import OURS, THEIRS, Counter, make

BACKBONES = pytest.mark.parametrize("backbone", ["td3", "sac"])
OBS = np.random.default_rng(0).normal(0.0, 2.0, (500, 3)).astype(np.float32)


def model(backbone: str, activation: str = "silu", kind=OURS, **settings):
    kwargs = {"net_arch": [12, 10], "activation_fn": ACTIVATIONS[activation].module}
    return make(
        kind[backbone], policy_kwargs={**kwargs, **settings.pop("policy_kwargs", {})}, **settings
    )


def engine_policy(backbone: str, activation: str, method: str = "damper") -> Policy:
    """A policy as the engine writes it."""
    networks = AgentNetworks(
        backbone,
        METHODS[method],
        NetworkSizes(3, 1, (12, 10), activation),
        Streams([7]),
        torch.float32,
    )
    layout = networks.actor_layout
    row = Layout(layout.layers).flatten(
        weight_list(layout.unflatten(networks.parameters["actor"]))
    )[0]
    info = PolicyInfo(
        "Pendulum-v1",
        backbone,
        method,
        7,
        100,
        activation,
        [-2.0],
        [2.0],
        list(layout.layers),
        {},
        {},
    )
    return Policy(info, row)


@BACKBONES
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_engine_policy_predicts_alike_in_sb3_and_back(backbone, activation, tmp_path):
    policy = engine_policy(backbone, activation)
    for kind in (OURS, THEIRS):
        target = model(backbone, activation, kind)
        to_sb3(policy, target)
        assert np.abs(target.predict(OBS, deterministic=True)[0] - policy(OBS)).max() < 1e-5
        back = from_sb3(target)
        assert torch.equal(back.flat_params, policy.flat_params)
        assert back.info.env == "Pendulum-v1" and back.info.backbone == backbone
    back.save(tmp_path / "policy.safetensors")
    assert np.array_equal(Policy.load(tmp_path / "policy.safetensors")(OBS), policy(OBS))
    if backbone == "td3":
        assert torch.equal(target.actor.mu[0].weight, target.actor_target.mu[0].weight)


def test_a_second_head_stays_behind():
    target = model("td3")
    policy = engine_policy("td3", "silu", "asap")
    to_sb3(policy, target)
    assert np.abs(target.predict(OBS, deterministic=True)[0] - policy(OBS)).max() < 1e-5


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(DamperError, match="must have the policy's layers"):
        to_sb3(engine_policy("td3", "silu"), model("td3", "relu"))
    narrow = engine_policy("td3", "silu")
    narrow.info.low[0] = -1.0
    with pytest.raises(DamperError, match="action bounds must be the policy's"):
        to_sb3(narrow, model("td3"))
    with pytest.raises(DamperError, match="use_sde bounds the mean"):
        from_sb3(model("sac", use_sde=True))
    make(OURS["td3"], VecNormalize(DummyVecEnv([Counter]))).save(tmp_path / "normalised")
    with pytest.raises(DamperError, match="but comes without their statistics"):
        from_sb3(OURS["td3"].load(tmp_path / "normalised"))
    with pytest.raises(DamperError, match=f"activation_fn must be {known_modules()}"):
        from_sb3(make(OURS["td3"], policy_kwargs={"activation_fn": torch.nn.Softsign}))

    odd = model("td3")
    odd.actor.features_extractor = torch.nn.Tanh()
    with pytest.raises(DamperError, match="without a features extractor"):
        from_sb3(odd)


# --- zips -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backbone", "exchange", "told"),
    [
        (
            "td3",
            lambda policy: policy.actor.mu.__setitem__(-1, torch.nn.Identity()),
            "activation_fn say, but does not: modules that were replaced",
        ),
        (
            "sac",
            lambda policy: policy.actor.latent_pi.__setitem__(1, torch.nn.Hardtanh()),
            "activation_fn say, but does not: modules that were replaced",
        ),
        (
            "sac",
            lambda policy: policy.actor.latent_pi.insert(1, torch.nn.LayerNorm(12)),
            "has others between them",
        ),
        (
            "ppo",
            lambda policy: setattr(policy, "action_net", torch.nn.Sequential(policy.action_net)),
            "action_net.0",
        ),
    ],
)
def test_modules_exchanged_in_a_model_are_not_overlooked(backbone, exchange, told):
    changed = model(backbone)
    from_sb3(changed)
    exchange(changed.policy)
    with pytest.raises(DamperError, match=f"{told}.*cannot be converted"):
        from_sb3(changed)


def test_the_comparison_with_the_model_is_in_float32(monkeypatch, request):
    """On a GPU TF32's rounding would exceed its tolerance."""
    kept, matmul = model("td3"), torch.backends.cuda.matmul
    seen, predict = [], kept.predict
    monkeypatch.setattr(
        kept, "predict", lambda *a, **k: seen.append(matmul.allow_tf32) or predict(*a, **k)
    )
    request.addfinalizer(partial(setattr, matmul, "allow_tf32", matmul.allow_tf32))
    matmul.allow_tf32 = True
    from_sb3(kept)
    assert seen == [False] and matmul.allow_tf32


def poison(path: Path) -> Path:
    """The same zip with every pickle replaced by one that must not be read."""
    poisoned = path.with_name("poisoned.zip")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(poisoned, "w") as target:
        data = json.loads(source.read("data"))
        for entry in data.values():
            if isinstance(entry, dict) and ":serialized:" in entry:
                entry[":serialized:"] = "not a pickle"
        target.writestr("data", json.dumps(data))
        target.writestr("policy.pth", source.read("policy.pth"))
    return poisoned


@BACKBONES
@pytest.mark.parametrize("kind", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_zip_is_read_without_unpickling(backbone, kind, tmp_path):
    saved = model(backbone, "tanh", kind)
    saved.save(tmp_path / "model.zip")
    policy = read_zip(poison(tmp_path / "model.zip"))
    assert np.abs(policy(OBS) - saved.predict(OBS, deterministic=True)[0]).max() < 1e-5
    assert policy.info.low == [-2.0] and policy.info.seed == 1
    assert policy.info.method == ("damper" if kind is OURS else "plain")


def test_default_networks_are_read_too(tmp_path):
    saved = THEIRS["td3"]("MlpPolicy", "Pendulum-v1", buffer_size=10)
    saved.save(tmp_path / "model.zip")
    assert (
        np.abs(
            read_zip(tmp_path / "model.zip")(OBS) - saved.predict(OBS, deterministic=True)[0]
        ).max()
        < 1e-5
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"policy_kwargs": {"features_extractor_class": FlattenExtractor}},
            "custom features extractor",
        ),
        ({"use_sde": True}, "uses gSDE"),
        ({"policy_kwargs": {"activation_fn": torch.nn.Softsign}}, "has another activation"),
    ],
)
def test_what_text_does_not_tell_needs_trust(settings, why, tmp_path):
    saved = model("sac", **settings)
    saved.save(tmp_path / "model.zip")
    with pytest.raises(
        DamperError, match=f"{why}.* unpickling, which runs whatever code .* --trust"
    ):
        read_zip(tmp_path / "model.zip")
    trusted = load_zip(tmp_path / "model.zip")
    assert np.array_equal(
        trusted.predict(OBS, deterministic=True)[0], saved.predict(OBS, deterministic=True)[0]
    )


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(DamperError, match="does not exist"):
        read_zip(tmp_path / "missing.zip")
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(DamperError, match="damaged or not a zip file"):
        read_zip(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("data", "{}")
    with pytest.raises(DamperError, match="is not a Stable-Baselines3 model"):
        read_zip(tmp_path / "other.zip")


def test_code_among_the_weights_is_not_run(tmp_path):
    model("td3").save(tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    torch.save({"actor.mu.0.weight": (tmp_path / "made").touch.__func__}, tmp_path / "policy.pth")
    files["policy.pth"] = (tmp_path / "policy.pth").read_bytes()
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with pytest.raises(DamperError, match=r"that torch's safe loader refuses, .* --trust"):
        read_zip(tmp_path / "model.zip")


def test_another_algorithm_is_refused_before_trust_is_asked_for(tmp_path):
    A2C("MlpPolicy", "Pendulum-v1", n_steps=64, device="cpu").save(tmp_path / "model.zip")
    for read in (read_zip, load_zip):
        with pytest.raises(DamperError, match="must hold a TD3, SAC, PPO, DDPG or TQC model"):
            read(tmp_path / "model.zip")


def test_rounded_bounds_are_not_believed(tmp_path):
    saved = model("td3")
    saved.action_space.high[0] = 1.23456789
    saved.save(tmp_path / "model.zip")
    with pytest.raises(
        DamperError,
        match="does not record the exact bounds of the action space: name its environment",
    ):
        read_zip(tmp_path / "model.zip")
    assert read_zip(tmp_path / "model.zip", bounds=([-2.0], [2.0])).info.high == [2.0]


def pendulum(wrapper: str) -> gymnasium.Env:
    """With a lambda or with arrays among a wrapper's arguments, new ones for each environment."""
    env = gymnasium.make("Pendulum-v1")
    if wrapper == "lambda":
        return gymnasium.wrappers.TransformReward(env, lambda reward: 0.1 * reward)
    if wrapper == "arrays":
        space = gymnasium.spaces.Box(-np.ones(3, np.float32), np.ones(3, np.float32))
        env = gymnasium.wrappers.TransformObservation(env, np.tanh, space)
        return gymnasium.wrappers.RescaleObservation(
            env, -np.ones(3, np.float32), np.ones(3, np.float32)
        )
    return env


@pytest.mark.parametrize("wrapper", ["lambda", "arrays"])
def test_several_environments_with_arguments_that_do_not_compare_are_recorded_as_one(
    wrapper, tmp_path
):
    trained = make(OURS["ppo"], DummyVecEnv([lambda: pendulum(wrapper)] * 2))
    trained.save(tmp_path / "model")
    assert env_spec(trained).id == "Pendulum-v1"


@pytest.mark.parametrize(("wrapper", "recorded"), [("lambda", "unknown"), ("none", "Pendulum-v1")])
def test_saving_leaves_environments_in_other_processes_alive(wrapper, recorded, tmp_path):
    trained = make(OURS["ppo"], SubprocVecEnv([lambda: pendulum(wrapper)]))
    try:
        trained.save(tmp_path / "model")
        trained.learn(100)
        assert env_spec(trained).id == recorded
    finally:
        trained.get_env().close()
