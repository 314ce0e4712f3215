"""Policies of PPO, DDPG, TQC and rsl_rl as zips, policy files and ONNX, and evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")
import sb3_contrib
import stable_baselines3

import damper
from damper.activations import EXPORTABLE_NAME_BY_MODULE, known_modules
from damper.cli import main
from damper.errors import DamperError
from damper.export import export
from damper.policies.exported import open_file
from damper.policies.opening import open_policy
from damper.policies.policy import Policy
from damper.sb3 import from_sb3, to_sb3
from tests.sb3.models import NAMES, OURS, THEIRS, dict_env, make

OBS = np.random.default_rng(0).uniform([-1, -1, -8], [1, 1, 8], (500, 3)).astype(np.float32)


def spread_out(model: Any) -> Any:
    """A policy whose actions reach the bounds, so that what bounds them shows."""
    with torch.no_grad():
        head = (
            model.policy.action_net
            if hasattr(model.policy, "action_net")
            else list(model.actor.mu.parameters())
        )
        weight = head.weight if isinstance(head, torch.nn.Linear) else head[-2]
        weight.copy_(3.0 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    return model


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("kind", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_zip_acts_and_is_exported(name: str, trust: bool, kind: Any, tmp_path: Path) -> None:
    model = spread_out(make(kind[name]))
    expected = model.predict(OBS, deterministic=True)[0]
    assert np.abs(expected).max() > 1.9 and expected.std() > 0.3
    model.save(tmp_path / "model")
    opened = open_policy(tmp_path / "model.zip", trust=trust)
    assert np.abs(opened.act(OBS) - expected).max() < 1e-5
    contract = export(tmp_path / "model.zip", tmp_path / "policy.onnx", trust=trust, episodes=0)
    assert np.abs(open_file(tmp_path / "policy.onnx")[0](OBS) - expected).max() < 2e-5
    assert contract["training"]["backbone"] == name
    assert contract["training"]["method"] == ("damper" if kind is OURS else "plain")


@pytest.mark.parametrize("name", NAMES)
def test_policies_pass_to_the_engine_s_format_and_back(name: str, tmp_path: Path) -> None:
    model = spread_out(make(OURS[name]))
    expected = model.predict(OBS, deterministic=True)[0]
    from_sb3(model).save(tmp_path / "policy.safetensors")
    policy = Policy.load(tmp_path / "policy.safetensors")
    assert policy.info.backbone == name and policy.info.squash == (name != "ppo")
    assert np.abs(policy(OBS) - expected).max() < 1e-5
    other = make(OURS[name], seed=2)
    to_sb3(policy, other)
    assert np.abs(other.predict(OBS, deterministic=True)[0] - expected).max() < 1e-5
    contract = export(policy, tmp_path / "policy.onnx", episodes=0)
    assert np.abs(open_file(tmp_path / "policy.onnx")[0](OBS) - expected).max() < 2e-5
    # PPO's cut ends sums of up to 176 on the check's larger observations: float32 rounds more.
    if name != "ppo":
        assert contract["check"]["largest_difference"] < 2e-5


def test_squashing_and_cutting_do_not_mix() -> None:
    with pytest.raises(
        DamperError, match="must bound its actions as the policy does, but td3 and ppo differ"
    ):
        to_sb3(from_sb3(make(OURS["ppo"])), make(OURS["td3"]))


def test_gsde_of_ppo_is_squashed_or_cut(tmp_path: Path) -> None:
    for squash in (False, True):
        kwargs = {"net_arch": [8], "squash_output": squash}
        model = spread_out(make(OURS["ppo"], use_sde=True, policy_kwargs=kwargs))
        model.save(tmp_path / "model")
        expected = model.predict(OBS, deterministic=True)[0]
        assert np.abs(open_policy(tmp_path / "model.zip").act(OBS) - expected).max() < 1e-5


def test_evaluation_of_a_zip_and_of_the_policy_agree(tmp_path: Path) -> None:
    model = spread_out(make(OURS["ppo"])).learn(50)
    model.save(tmp_path / "model")
    main(
        ["evaluate", str(tmp_path / "model.zip"), "--episodes", "2", "--out", str(tmp_path / "out")]
    )
    recorded = json.loads((tmp_path / "out" / "episodes.json").read_text())["episodes"]
    direct = damper.evaluate(from_sb3(model), episodes=2).records()
    assert [row["return"] for row in recorded] == pytest.approx(
        [row["return"] for row in direct], rel=1e-3
    )


def test_what_ppo_cannot_tell_is_refused(tmp_path: Path) -> None:
    from stable_baselines3.common.envs import IdentityEnv

    make(OURS["ppo"], IdentityEnv(3), method="plain").save(tmp_path / "discrete")
    with pytest.raises(DamperError, match="has discrete actions"):
        open_policy(tmp_path / "discrete.zip")


def test_dict_observations_are_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    model = THEIRS["ppo"]("MultiInputPolicy", dict_env(), n_steps=64, device="cpu")
    model.save(tmp_path / "model")
    attempts = [
        lambda source: damper.evaluate(source, episodes=1),
        lambda source: export(source, tmp_path / "policy.onnx"),
        lambda source: export(source, tmp_path / "policy.onnx", trust=True),
    ]
    for attempt in attempts:
        for source in (model, tmp_path / "model.zip"):
            with pytest.raises(
                DamperError, match=r"but (is|has) Dict.*: train it in .*FlattenObservation"
            ):
                attempt(source)


def test_images_are_refused_whose_scaling_the_layers_do_not_tell(tmp_path: Path) -> None:
    space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    THEIRS["ppo"]("MlpPolicy", Silent(space), n_steps=64, device="cpu").save(tmp_path / "model")
    for trust in (False, True):
        with pytest.raises(DamperError, match=r"has images: train it in .*FlattenObservation"):
            open_policy(tmp_path / "model.zip", trust=trust)


@pytest.mark.parametrize("trust", [False, True])
def test_matrices_of_observations_and_actions_are_taken_as_vectors(
    trust: bool, tmp_path: Path
) -> None:
    matrix, vector = (
        gymnasium.spaces.Box(-2.0, 2.0, shape, np.float32) for shape in ((2, 3), (3,))
    )
    for seen, acted in ((matrix, vector), (vector, matrix)):
        model = make(OURS["td3"], Silent(seen, acted))
        model.save(tmp_path / "model")
        obs = np.random.default_rng(0).uniform(-2.0, 2.0, (50, *seen.shape)).astype(np.float32)
        found = damper.load(tmp_path / "model.zip", trust=trust).predict(obs.reshape(50, -1))[0]
        assert np.abs(found - model.predict(obs)[0].reshape(50, -1)).max() < 1e-5
    export(model, tmp_path / "policy.onnx")
    assert np.abs(open_file(tmp_path / "policy.onnx")[0](obs) - found).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "policy", "message"),
    [
        ("RecurrentPPO", "MlpLstmPolicy", "carries a memory from step to step"),
        ("CrossQ", "MlpPolicy", "another algorithm's: load it and pass the model"),
    ],
)
def test_what_resembles_ppo_and_sac_is_not_taken_for_them(
    name: str, policy: str, message: str, tmp_path: Path
) -> None:
    model = getattr(sb3_contrib, name)(policy, "Pendulum-v1", device="cpu")
    model.save(tmp_path / "model")
    for trust in (False, True):
        with pytest.raises(DamperError, match=message):
            open_policy(tmp_path / "model.zip", trust=trust)
    if name == "RecurrentPPO":
        with pytest.raises(DamperError, match=message):
            damper.evaluate(model, episodes=1)
    else:  # the advice holds
        assert damper.evaluate(model, episodes=1).env == "Pendulum-v1"


def test_a_zip_of_discrete_actions_gets_no_advice_that_is_refused(tmp_path: Path) -> None:
    model = stable_baselines3.DQN("MlpPolicy", "CartPole-v1", buffer_size=10, device="cpu")
    model.save(tmp_path / "model")
    for trust in (False, True):
        with pytest.raises(DamperError, match=r"has discrete actions: only policies of a Box"):
            damper.evaluate(tmp_path / "model.zip", episodes=1, trust=trust)


class Silent(gymnasium.Env[np.ndarray, np.ndarray]):
    """Of these spaces; it is never stepped."""

    def __init__(
        self, seen: gymnasium.spaces.Box, acted: gymnasium.spaces.Box | None = None
    ) -> None:
        self.observation_space = seen
        self.action_space = acted or gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


def test_rsl_rl_policies_hold_their_normaliser(tmp_path: Path) -> None:
    pytest.importorskip("rsl_rl")
    from tests.rsl_rl.pendulums import config, train

    runner = train(3)
    actor = runner.alg.actor
    assert float(actor.obs_normalizer.mean.abs().max()) > 1e-3
    contract = export(runner, tmp_path / "policy.onnx")
    groups = runner.env.get_observations()
    with torch.no_grad():
        expected = actor(groups).numpy()
    vector = torch.cat([groups["policy"], groups["speed"]], -1).numpy()
    assert np.abs(open_file(tmp_path / "policy.onnx")[0](vector) - expected).max() < 1e-5
    assert (
        contract["observation"]["normalisation"] == "inside"
        and contract["check"]["largest_difference"] < 1e-4
    )
    assert (
        contract["training"]["obs_groups"] == ["policy", "speed"]
        and contract["training"]["settings"]["eta"] == 0.0
    )
    assert contract["action"]["low"] == [None]
    assert np.array_equal(open_policy(actor).act(vector), expected)
    cfg = config()
    cfg["actor"]["activation"] = "sigmoid"
    with pytest.raises(
        DamperError,
        match=f"activation must be {known_modules(EXPORTABLE_NAME_BY_MODULE)}, but is Sigmoid",
    ):
        export(train(1, cfg=cfg), tmp_path / "no.onnx")
