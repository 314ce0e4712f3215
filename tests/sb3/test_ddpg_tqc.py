"""DDPG and TQC: what holds for TD3 and SAC holds for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, FakeImageEnv
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from damper.errors import DamperError
from tests.sb3.models import OURS, THEIRS, check_learned, dict_env, make, quiet, weights

BACKBONES = pytest.mark.parametrize("backbone", ["ddpg", "tqc"])
STEPS = 70


@BACKBONES
@pytest.mark.parametrize(
    "method", ["damper", "caps", "grad-caps", "asap", "bloop", "temporal-ramp", "damper+l2c2"]
)
def test_methods_train(backbone: str, method: str) -> None:
    model = quiet(make(OURS[backbone], method=method)).learn(STEPS)
    assert weights(model).isfinite().all() and "train/auxiliary_loss" in model.logger.name_to_value


@pytest.mark.parametrize("method", ["l2c2", "pave"])
def test_losses_on_values_are_ddpg_s_alone(method: str) -> None:
    with pytest.raises(DamperError, match="TQC's critics predict quantiles"):
        make(OURS["tqc"], method=method)
    with pytest.raises(DamperError, match="critic is neither"):
        make(OURS["tqc"], critic=method)
    kwargs = {"net_arch": [8], "activation_fn": torch.nn.SiLU, "n_critics": 2}
    make(OURS["ddpg"], method=method, policy_kwargs=kwargs).learn(STEPS)


def test_pave_says_how_ddpg_gets_its_second_critic() -> None:
    with pytest.raises(
        DamperError, match=r"n_critics must be 2 .* but is 1: give policy_kwargs={'n_critics': 2}"
    ):
        make(OURS["ddpg"], method="pave")


@BACKBONES
def test_spaces(backbone: str) -> None:
    small = {"buffer_size": 200, "batch_size": 8, "learning_starts": 10}
    picture = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=False)
    kwargs = {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 8}}
    check_learned(
        make(OURS[backbone], picture, policy="CnnPolicy", policy_kwargs=kwargs, **small), 15
    )
    several = dict_env()
    dicts = {"policy": "MultiInputPolicy", "policy_kwargs": {"net_arch": [8]}}
    check_learned(make(OURS[backbone], several, **dicts, **small), 15)
    goals = BitFlippingEnv(n_bits=3, continuous=True)
    check_learned(
        make(OURS[backbone], goals, policy="MultiInputPolicy", replay_buffer_class=HerReplayBuffer),
        STEPS,
    )


@BACKBONES
def test_normalisation_several_environments_and_callbacks(backbone: str) -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2))
    callback = EvalCallback(
        VecNormalize(make_vec_env("Pendulum-v1"), training=False), n_eval_episodes=1, eval_freq=40
    )
    callback.verbose = 0
    assert make(OURS[backbone], env, n_steps=2).learn(STEPS, callback=callback)._n_updates > 0


@BACKBONES
def test_seeds_saving_and_passing_between_the_classes(backbone: str, tmp_path: Any) -> None:
    first, second = (make(OURS[backbone], eta=0.5).learn(STEPS) for _ in range(2))
    assert torch.equal(weights(first), weights(second))
    obs = np.stack([first.observation_space.sample() for _ in range(9)])
    first.save(tmp_path / "ours")
    theirs = THEIRS[backbone].load(tmp_path / "ours", env=first.get_env())
    again = OURS[backbone].load(tmp_path / "ours", env=first.get_env())
    for loaded in (theirs, again):
        assert np.array_equal(
            loaded.predict(obs, deterministic=True)[0], first.predict(obs, deterministic=True)[0]
        )
        loaded.learn(STEPS)
    assert again.eta == 0.5
    theirs.save(tmp_path / "theirs")
    assert OURS[backbone].load(tmp_path / "theirs", method="caps").method == "caps"
