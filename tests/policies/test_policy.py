"""Policy files: what was trained is what is read back, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from damper.engine.loop.trainer import Trainer
from damper.errors import DamperError
from damper.policies.policy import Policy
from tests.engine import small

OBS = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("backbone", "method"), [("td3", "plain"), ("sac", "damper"), ("td3", "asap")]
)
def test_a_policy_acts_as_its_agent_did(tmp_path: Path, backbone: str, method: str) -> None:
    trainer = Trainer(small.settings(backbone, method, seeds=(4, 9), steps=60), tmp_path / "run")
    run = trainer.train()
    obs = np.stack([OBS[0, 0], OBS[0, 1]])
    mean = 2 * trainer.acting.act(obs)[2]  # Pendulum's torque is in ±2
    for j, seed in enumerate((4, 9)):
        policy = run.policy(j)
        np.testing.assert_allclose(policy(obs[j]), mean[j], atol=1e-6)
        info = policy.info
        assert (info.seed, info.backbone, info.method, info.env) == (
            seed,
            backbone,
            method,
            "Pendulum-v1",
        )
        assert (info.low, info.high, info.steps) == ([-2.0], [2.0], 60)
        assert "prediction" not in [name for name, _, _ in info.layers], (
            "a second head serves training only"
        )
    assert not np.allclose(run.policy(0)(OBS), run.policy(1)(OBS))


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return (
        Trainer(small.settings(seeds=(4,), steps=30, eta=0.5, method="damper"), tmp_path / "run")
        .train()
        .policy()
    )


def test_any_leading_shape_will_do(policy: Policy) -> None:
    actions = policy(OBS)
    assert actions.shape == (2, 5, 1) and actions.dtype == np.float32 and (abs(actions) <= 2).all()
    np.testing.assert_allclose(policy(OBS[1, 3]), actions[1, 3], atol=1e-6)
    np.testing.assert_allclose(policy(OBS[1].tolist()), actions[1], atol=1e-6)
    for wrong in (OBS[..., :2], 3.0):
        with pytest.raises(
            DamperError, match=r"obs must have shape \[\.\.\., 3\], but has .*Pendulum-v1"
        ):
            policy(wrong)


def test_it_says_what_it_is(policy: Policy) -> None:
    assert repr(policy) == "<Policy of Pendulum-v1: 3 in, 1 out; td3 damper, seed 4, 30 steps>"
    unknown = Policy(replace(policy.info, seed=-1), policy.flat_params)
    assert repr(unknown) == "<Policy of Pendulum-v1: 3 in, 1 out; td3 damper, 30 steps>"


def test_it_predicts_as_sb3_s_models_do(policy: Policy) -> None:
    for obs, shape in ((OBS[0, 0], (1,)), (OBS[0], (5, 1))):
        action, state = policy.predict(obs)
        assert state is None and action.shape == shape and action.dtype == np.float32
        np.testing.assert_array_equal(action, policy(obs))
    memory = (np.zeros(1),)
    again, state = policy.predict(
        OBS[0], state=memory, episode_start=np.ones(5, bool), deterministic=True
    )
    assert state is memory
    np.testing.assert_array_equal(again, policy(OBS[0]))
    # TD3's policy is deterministic, whatever is asked; so is SB3's.
    np.testing.assert_array_equal(policy.predict(OBS[0], deterministic=False)[0], policy(OBS[0]))


@pytest.mark.parametrize(
    ("obs", "given"),
    [
        (["a", "b", "c"], "str"),
        ({"obs": OBS}, "object"),
        (OBS + 1j, "complex64"),
        ([[1.0, 2.0, 3.0], [1.0]], "list"),
        (None, "object"),
    ],
)
def test_observations_that_are_no_numbers_are_refused(
    policy: Policy, obs: object, given: str
) -> None:
    with pytest.raises(
        DamperError, match=rf"^obs must be an array of real numbers, but is .*{given}.*: give .*\.$"
    ):
        policy.predict(obs)  # type: ignore[arg-type]


def test_observations_of_any_real_type_are_read(policy: Policy) -> None:
    expected = policy(np.array([1.0, 0.0, -3.0], np.float32))
    for obs in (
        [1, 0, -3],
        np.array([1, 0, -3], np.int8),
        torch.tensor([1.0, 0.0, -3.0], dtype=torch.float64),
    ):
        np.testing.assert_array_equal(policy.predict(obs)[0], expected)


def test_sac_draws_from_its_distribution(tmp_path: Path) -> None:
    policy = Trainer(small.settings("sac", seeds=(4,), steps=30), tmp_path / "run").train().policy()
    obs = np.repeat(OBS[0, :1], 4000, 0)
    torch.manual_seed(0)
    drawn, _ = policy.predict(obs, deterministic=False)
    torch.manual_seed(0)
    np.testing.assert_array_equal(policy.predict(obs, deterministic=False)[0], drawn)
    mean, log_std = (x[0, 0] for x in policy.actor.distribution(torch.from_numpy(obs[:1])[None]))
    latent = np.arctanh(np.clip(drawn / 2, -1 + 1e-6, 1 - 1e-6))  # Pendulum's torque is in ±2
    assert abs(latent.mean() - mean.item()) < 0.1 * log_std.exp().item()
    assert abs(latent.std() / log_std.exp().item() - 1) < 0.1


def test_a_policy_without_its_spread_says_so(policy: Policy) -> None:
    cut = Policy(replace(policy.info, backbone="ppo", squash=False), policy.flat_params)
    with pytest.raises(
        DamperError, match=r"deterministic must be True for this policy of ppo, .* no distribution"
    ):
        cut.predict(OBS[0], deterministic=False)


def test_the_same_policy_is_the_same_bytes(policy: Policy, tmp_path: Path) -> None:
    trained = Policy(replace(policy.info, backend="envpool"), policy.flat_params)
    for i in range(8):
        trained.save(tmp_path / f"{i}.safetensors")
    assert len({path.read_bytes() for path in tmp_path.glob("*.safetensors")}) == 1
    assert Policy.load(tmp_path / "0.safetensors").info.backend == "envpool"


def test_saved_and_loaded_is_the_same(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "copy.safetensors"
    policy.save(str(path))
    again = Policy.load(str(path))
    assert again.info == policy.info and torch.equal(again.flat_params, policy.flat_params)
    np.testing.assert_array_equal(again(OBS), policy(OBS))
    with safe_open(str(path), framework="pt") as file:
        header = json.loads(file.metadata()["damper_policy"])
    assert header["settings"]["eta"] == 0.5 and "torch" in header["versions"]


def test_anything_else_is_refused(policy: Policy, tmp_path: Path) -> None:
    whole = tmp_path / "policy.safetensors"
    policy.save(whole)
    cut, text, other, strange = (tmp_path / name for name in ("cut", "text", "other", "strange"))
    cut.write_bytes(whole.read_bytes()[:-5])
    text.write_text("weights")
    save_file({"actor": policy.flat_params}, other)
    save_file(
        {"actor": policy.flat_params},
        strange,
        {"damper_policy": json.dumps({"env": "Pendulum-v1"})},
    )
    for path, told in (
        (tmp_path / "none", "must be a policy file, but is not"),
        (tmp_path, "must be a policy file, but is not"),
        (cut, "is damaged or not a safetensors file"),
        (text, "is damaged or not a safetensors file"),
        (other, "not a damper policy of this version"),
        (strange, "not a damper policy of this version"),
    ):
        with pytest.raises(DamperError, match=told):
            Policy.load(path)


def test_a_run_that_is_not_finished_has_no_policies_yet(tmp_path: Path) -> None:
    run = Trainer(small.settings(), tmp_path / "run").run
    with pytest.raises(DamperError, match="is not finished: run the same command again"):
        run.policy()
