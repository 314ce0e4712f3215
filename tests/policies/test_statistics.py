"""Zips of SB3's own classes under VecNormalize: refused, or said to be unknown, never silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
import stable_baselines3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import damper
from damper.errors import DamperError

OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
SETTINGS: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 32, "batch_size": 32},
    "TD3": {"learning_starts": 20, "buffer_size": 100},
    "SAC": {"learning_starts": 20, "buffer_size": 100},
}


def trained(name: str, path: Path, norm_obs: bool | None) -> tuple[Any, Any]:
    """A saved model of SB3's own and its environment; ``norm_obs`` None without VecNormalize."""
    env: Any = DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")])
    if norm_obs is not None:
        env = VecNormalize(env, norm_obs=norm_obs)
    kwargs = {"net_arch": [8]}
    kind = getattr(stable_baselines3, name)
    model = kind("MlpPolicy", env, policy_kwargs=kwargs, device="cpu", **SETTINGS[name])
    model.learn(32).save(path)
    return model, env


def test_a_zip_of_ppo_reveals_its_normalised_observations(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    model, env = trained("PPO", path, norm_obs=True)
    for source in (path, stable_baselines3.PPO.load(path)):
        for trust in (False, True):
            with pytest.raises(
                DamperError, match=r"was trained under VecNormalize, .* --vecnormalize"
            ):
                damper.evaluate(source, "Pendulum-v1", episodes=1, trust=trust)
    loaded = damper.load(path, vecnormalize=env)
    expected, _ = model.predict(env.normalize_obs(OBS), deterministic=True)
    np.testing.assert_allclose(loaded.predict(OBS)[0], expected, atol=1e-5)


def test_a_zip_of_ppo_without_normalised_observations_is_evaluated(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    trained("PPO", path, norm_obs=None)
    assert damper.evaluate(path, "Pendulum-v1", episodes=1).env == "Pendulum-v1"
    model, env = trained("PPO", path, norm_obs=False)  # rewards alone
    expected, _ = model.predict(OBS, deterministic=True)
    loaded = damper.load(path, vecnormalize=env)
    np.testing.assert_allclose(loaded.predict(OBS)[0], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["TD3", "SAC"])
@pytest.mark.parametrize("trust", [False, True])
def test_what_an_off_policy_zip_does_not_record_is_said(
    name: str, trust: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "model.zip"
    _, env = trained(name, path, norm_obs=True)
    damper.load(path, trust=trust)
    assert caplog.text.count("does not record whether VecNormalize normalised") == 1
    caplog.clear()
    damper.load(path, vecnormalize=env, trust=trust)
    assert not caplog.text


@pytest.mark.parametrize("trust", [False, True])
def test_a_vecnormalize_that_normalises_no_observations_changes_none(
    trust: bool, tmp_path: Path
) -> None:
    model, _ = trained("TD3", tmp_path / "model.zip", norm_obs=None)
    rewards = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), norm_obs=False)
    loaded = damper.load(tmp_path / "model.zip", vecnormalize=rewards, trust=trust)
    expected, _ = model.predict(OBS, deterministic=True)
    np.testing.assert_allclose(loaded.predict(OBS)[0], expected, atol=1e-5)


def test_a_missing_file_of_statistics_is_said_before_trust(tmp_path: Path) -> None:
    trained("TD3", tmp_path / "model.zip", norm_obs=None)
    with pytest.raises(DamperError, match=r"missing.pkl does not exist: give what VecNormalize's"):
        damper.load(tmp_path / "model.zip", vecnormalize=tmp_path / "missing.pkl")
