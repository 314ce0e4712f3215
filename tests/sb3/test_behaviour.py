"""What SB3 users rely on: spaces, callbacks, wrappers, saving, seeds, progress."""

from __future__ import annotations

import json
import zipfile

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, FakeImageEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import LinearSchedule, set_random_seed
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from torch import nn

from damper import METHODS, DamperError
from damper.sb3.archive import read_zip
from tests.sb3.models import (
    NAMES,
    OURS,
    THEIRS,
    Counter,
    check_learned,
    dict_env,
    make,
    optimizer,
    quiet,
    weights,
)

STEPS = 80
BACKBONES = pytest.mark.parametrize("backbone", ["td3", "sac"])
OBS = gymnasium.spaces.Box(-2.0, 2.0, (4,), np.float32)


def predictions(model, count: int = 20):
    space = model.observation_space
    obs = np.stack([space.sample() for _ in range(count)])
    return obs, model.predict(obs, deterministic=True)[0]


# --- spaces, networks, wrappers ------------------------------------------------------------------


@BACKBONES
@pytest.mark.parametrize("method", ["damper", "grad-caps"])
def test_dict_and_image_observations(backbone, method):
    picture = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=False)
    for env, policy in ((dict_env(), "MultiInputPolicy"), (picture, "CnnPolicy")):
        extractor = (
            {"features_extractor_kwargs": {"features_dim": 8}} if policy == "CnnPolicy" else {}
        )
        kwargs = {"net_arch": [8], **extractor}
        small = {
            "buffer_size": 200,
            "batch_size": 8,
            "learning_starts": 10,
            "policy_kwargs": kwargs,
        }
        check_learned(make(OURS[backbone], env, policy=policy, method=method, **small), 20)


@BACKBONES
def test_hindsight_replay(backbone):
    env = BitFlippingEnv(n_bits=3, continuous=True)
    check_learned(
        make(OURS[backbone], env, policy="MultiInputPolicy", replay_buffer_class=HerReplayBuffer),
        STEPS,
    )


@pytest.mark.parametrize("method", ["damper", "l2c2", "asap", "l2c2-released"])
def test_state_dependent_exploration(method):
    model = make(
        OURS["sac"], method=method, use_sde=True, use_sde_at_warmup=True, sde_sample_freq=8
    )
    model.learn(STEPS)
    assert weights(model).isfinite().all()


class Noisy(BaseFeaturesExtractor):
    """A features extractor whose training differs from its evaluation."""

    def __init__(self, space):
        super().__init__(space, 8)
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.SiLU())

    def forward(self, obs):
        return self.body(obs)


@BACKBONES
def test_dropout_and_batch_normalisation_stay_sb3s(backbone, exact):
    """The smoothness loss sees the policy that will run: no mask drawn, no statistics moved."""
    kwargs = {"features_extractor_class": Noisy, "net_arch": [8]}
    theirs = make(THEIRS[backbone], policy_kwargs=kwargs).learn(STEPS)
    ours = make(OURS[backbone], policy_kwargs=kwargs, rule="scalarization", weight=0.0).learn(STEPS)
    difference = (weights(ours) - weights(theirs)).norm()
    assert difference <= 1e-5 * weights(theirs).norm()
    for mine, other in zip(ours.policy.buffers(), theirs.policy.buffers(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["plain", "damper", "caps"])
@pytest.mark.parametrize("name", NAMES)
def test_critics_learn_as_in_sb3_while_the_actor_is_frozen(name, method, exact):
    def trained(kind, **own):
        model = make(kind, **own)
        acting = ("actor.", "mlp_extractor.policy_net.", "action_net.", "log_std")
        for title, parameter in model.policy.named_parameters():
            parameter.requires_grad_(not title.startswith(acting))
        before = weights(model)
        return before, weights(model.learn(STEPS))

    (before, theirs), (_, ours) = trained(THEIRS[name]), trained(OURS[name], method=method)
    assert torch.equal(ours, theirs) and not torch.equal(ours, before)


@pytest.mark.parametrize("name", ["td3", "sac", "ppo"])
def test_compiled_networks_train_alike(name):
    def trained(compiled):
        model = make(OURS[name])
        part = "policy" if name == "ppo" else "actor"
        if compiled:
            setattr(model, part, torch.compile(getattr(model, part), backend="eager"))
        return weights(model.learn(STEPS))

    once, other = trained(False), trained(True)
    assert (once - other).norm() <= 1e-4 * once.norm()


@BACKBONES
def test_vectorised_environments_and_normalisation(backbone):
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=3), clip_obs=5.0)
    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    model = make(OURS[backbone], env, action_noise=noise, train_freq=2, gradient_steps=-1)
    model.learn(3 * STEPS)
    assert model._n_updates > 0
    evaluate_policy(model, env, n_eval_episodes=1, warn=False)


def test_training_by_episodes():
    model = make(OURS["td3"], Counter(7), train_freq=(1, "episode"), gradient_steps=-1)
    check_learned(model, STEPS)
    assert model.num_timesteps % 7 == 0 and model._n_updates % 7 == 0, (
        "a whole episode, then as many updates"
    )


def normalised(**settings):
    return VecNormalize(make_vec_env("Pendulum-v1"), **settings)


@pytest.mark.parametrize("name", ["td3", "ppo"])
def test_a_model_goes_on_with_the_observations_it_was_trained_on(name, tmp_path):
    """Neither loading nor learning loses that the weights belong to VecNormalize's statistics."""
    env = normalised()
    make(OURS[name], env).learn(STEPS).save(tmp_path / "model")
    env.save(tmp_path / "statistics.pkl")
    load = OURS[name].load
    plain, fresh = make_vec_env("Pendulum-v1"), normalised()
    fresh.reset()
    given = "the environment must give observations as the model was trained on them"
    for other, sentence in (
        (plain, ", normalised by VecNormalize, but they come as the environment returns them"),
        (normalised(norm_obs=False), ", normalised by VecNormalize, but they come as"),
        (fresh, r", but VecNormalize has seen none yet: use VecNormalize.load\(statistics, env\)"),
    ):
        with pytest.raises(DamperError, match=given + sentence):
            load(tmp_path / "model", env=other)
        model = load(tmp_path / "model")
        model.set_env(other)
        with pytest.raises(DamperError, match=given + sentence):
            model.learn(STEPS)
        assert model.norm_obs is True
        other_model = make(OURS[name], other)
        other_model.set_parameters(tmp_path / "model")  # the way out that the sentence names
        other_model.learn(STEPS)
    restored = VecNormalize.load(str(tmp_path / "statistics.pkl"), make_vec_env("Pendulum-v1"))
    load(tmp_path / "model", env=restored).learn(STEPS)

    make(OURS[name], plain).learn(STEPS).save(tmp_path / "plain")
    with pytest.raises(DamperError, match="as the environment returns them, but they come norm"):
        load(tmp_path / "plain", env=env)


def test_a_model_that_has_not_learned_takes_any_environment(tmp_path):
    make(OURS["td3"], normalised()).save(tmp_path / "model")
    model = OURS["td3"].load(tmp_path / "model", env=make_vec_env("Pendulum-v1")).learn(STEPS)
    assert model.norm_obs is False


# --- callbacks, log, progress --------------------------------------------------------------------


def test_callbacks_run_and_can_stop(tmp_path):
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.num_timesteps < 70

    env = make_vec_env("Pendulum-v1")
    evaluation = EvalCallback(
        env, eval_freq=40, n_eval_episodes=1, verbose=0, best_model_save_path=str(tmp_path)
    )
    checkpoint = CheckpointCallback(30, str(tmp_path), name_prefix="point")
    model = make(OURS["td3"]).learn(500, callback=[evaluation, checkpoint, Stop()])
    assert model.num_timesteps == 70
    assert (tmp_path / "best_model.zip").is_file() and (tmp_path / "point_60_steps.zip").is_file()


def test_tensorboard_shows_the_method(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    make(OURS["td3"], Counter(10), tensorboard_log=str(tmp_path)).learn(
        100, log_interval=1, tb_log_name="run"
    )
    read = events.EventAccumulator(str(tmp_path / "run_1"))
    read.Reload()
    assert {"train/auxiliary_loss", "train/conflict", "train/actor_loss"} <= set(
        read.Tags()["scalars"]
    )


@pytest.mark.filterwarnings(
    "ignore:rich is experimental/alpha"
)  # tqdm says so of the bar that SB3 chose
def test_the_progress_bar(capsys):
    pytest.importorskip("tqdm")
    make(OURS["td3"]).learn(60, progress_bar=True)
    shown = "".join(capsys.readouterr())
    assert "60/60" in shown


def test_the_ramp_follows_sb3s_progress():
    model = quiet(make(OURS["td3"], method="temporal-ramp")).learn(STEPS)
    assert model._sample_inputs(4).sb3_batch.progress == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_schedules_follow_sb3s_progress(name, tmp_path):
    eta = LinearSchedule(0.0, 1.0, 1.0)
    model = make(OURS[name], eta=eta, learning_rate=lambda remaining: 1e-3 * remaining)
    seen = []
    step = optimizer(model).step

    def spy(*a, **k):
        remaining = model._current_progress_remaining
        seen.append(
            (remaining, model._settings["rule"]["eta"], optimizer(model).param_groups[0]["lr"])
        )
        return step(*a, **k)

    optimizer(model).step = spy
    model.learn(150)
    assert len(seen) > 5 and len({remaining for remaining, *_ in seen}) > 2
    for remaining, used, rate in seen:
        assert used == eta(remaining) and rate == pytest.approx(1e-3 * remaining)
    assert model.eta == model.method_settings["eta"] and "LinearSchedule" in model.eta
    model.save(tmp_path / "model")
    again = OURS[name].load(tmp_path / "model")
    assert again.eta == model.eta and again.eta(0.25) == 0.75
    again.eta = "cosine:1:0"
    again.save(tmp_path / "model")
    assert OURS[name].load(tmp_path / "model").eta(0.0) == 0.0
    assert read_zip(tmp_path / "model.zip", ([-2.0], [2.0])).info.settings["eta"] == "cosine:1:0"


@pytest.mark.parametrize("name", NAMES)
def test_the_learning_rate_may_be_a_schedule_s_text(name, tmp_path):
    model = make(OURS[name], learning_rate="linear:1e-3:0").learn(STEPS)
    assert model.lr_schedule(0.5) == pytest.approx(5e-4)
    model.save(tmp_path / "model")
    for cls in (OURS[name], THEIRS[name]):
        assert cls.load(tmp_path / "model").lr_schedule(0.25) == pytest.approx(2.5e-4)
    assert OURS[name].load(tmp_path / "model", learning_rate="cosine:1:0").lr_schedule(0.0) == 0.0


def test_a_model_has_one_eta():
    sentence = r"^eta must be a number, or a schedule such as linear:0:1, but .* was given"
    for several in ([0.5], np.array([0.5, 0.6]), torch.tensor([0.1, 0.2])):
        with pytest.raises(DamperError, match=sentence):
            make(OURS["td3"], eta=several)


def test_a_switch_is_no_number():
    with pytest.raises(
        DamperError, match=r"^squared must be True or False, .*, but 'no' was given"
    ):
        make(OURS["td3"], squared="no")


def test_a_schedule_is_checked_along_its_way():
    for wrong in ("linear:0:1.5", lambda remaining: -remaining):
        with pytest.raises(DamperError, match=r"eta must be in \[0, 1\]"):
            make(OURS["td3"], eta=wrong)
    model = make(OURS["td3"])
    with pytest.raises(DamperError, match=r"eta must be in \[0, 1\]"):
        model.eta = "linear:0:1.5"
    assert model.eta == 1.0


# --- seeds, saving, loading ----------------------------------------------------------------------


@BACKBONES
@pytest.mark.parametrize("method", ["damper", "caps", "asap"])
def test_the_same_seed_twice_gives_the_same_weights(backbone, method):
    runs = [weights(make(OURS[backbone], method=method).learn(STEPS)) for _ in range(2)]
    assert torch.equal(*runs)


@pytest.mark.parametrize("name", ["td3", "ppo"])
def test_a_global_seed_is_enough(name):
    def trained():
        set_random_seed(0)
        return weights(
            make(OURS[name], make_vec_env("Pendulum-v1", seed=0), method="caps", seed=None).learn(
                STEPS
            )
        )

    assert torch.equal(trained(), trained())


def test_models_without_a_seed_have_noise_of_their_own():
    first, second = (
        make(OURS["td3"], method="caps", seed=None)._generator.initial_seed() for _ in range(2)
    )
    assert first != second


@BACKBONES
@pytest.mark.parametrize("method", ["damper", "asap", "bloop", "metabalance"])
def test_saved_models_predict_alike_and_go_on(backbone, method, tmp_path):
    model = make(OURS[backbone], method=method).learn(STEPS)
    obs, actions = predictions(model)
    model.save(tmp_path / "model")
    loaded = OURS[backbone].load(tmp_path / "model", env=model.get_env())
    assert np.array_equal(loaded.predict(obs, deterministic=True)[0], actions)
    assert loaded.method == method and loaded.method_settings == model.method_settings
    for mine, other in zip(
        loaded.method_state.state_dict().items(),
        model.method_state.state_dict().items(),
        strict=True,
    ):
        assert mine[0] == other[0] and torch.equal(mine[1], other[1])
    before = weights(loaded).clone()
    loaded.learn(STEPS)
    assert not torch.equal(weights(loaded), before)


def test_settings_can_change_at_loading(tmp_path):
    make(OURS["td3"], eta=0.25).save(tmp_path / "model")
    load = OURS["td3"].load
    assert load(tmp_path / "model")._settings["rule"]["eta"] == 0.25
    assert load(tmp_path / "model", eta=0.75)._settings["rule"]["eta"] == 0.75
    assert load(tmp_path / "model", method="plain")._settings["rule"] == {}
    assert load(tmp_path / "model", rule="pcgrad")._method.rule == "pcgrad"
    for wrong in ({"lambda_T": 3.0}, {"method": "plain", "eta": 0.75}):
        with pytest.raises(
            DamperError, match="is neither an argument of SB3's class nor a setting of the method"
        ):
            load(tmp_path / "model", **wrong)
    for wrong, meant in (("etta", "eta"), ("learning_rte", "learning_rate")):
        with pytest.raises(DamperError, match=f"{wrong} is neither .*: did you mean '{meant}'"):
            load(tmp_path / "model", **{wrong: 0.5})
    assert load(tmp_path / "model", note="mine").note == "mine", "SB3 keeps whatever is given"


@pytest.mark.parametrize("number", [0.25, np.float32(0.25), torch.tensor(0.25)])
def test_defaults_are_recorded_and_settings_are_attributes(tmp_path, number):
    model = quiet(make(OURS["td3"]))
    assert model.method_settings["eta"] == 1.0 and model.eta == 1.0
    model.eta = number
    assert model.method_settings["eta"] == 0.25 and model._settings["rule"]["eta"] == 0.25
    model.learn(STEPS).save(tmp_path / "model")
    data = json.loads(zipfile.ZipFile(tmp_path / "model.zip").read("data"))
    assert (
        data["method_settings"]["eta"] == 0.25 and data["method_settings"]["mask_terminal"] is True
    )
    loaded = OURS["td3"].load(tmp_path / "model")
    assert loaded.eta == 0.25
    # Defaults of one method are no settings of another, what was given is.
    smooth = make(OURS["td3"], method="caps")
    smooth.save(tmp_path / "caps")
    assert (
        OURS["td3"].load(tmp_path / "caps", method="l2c2").sigma
        == METHODS["l2c2"].settings()["sigma"]
    )
    smooth.sigma = 0.3
    smooth.save(tmp_path / "caps")
    assert OURS["td3"].load(tmp_path / "caps", method="l2c2").sigma == 0.3


@BACKBONES
def test_the_temporal_loss_in_the_environment_s_units(backbone, tmp_path):
    losses = {}
    for units in ("policy", "environment"):
        model = quiet(make(OURS[backbone], method="pegrad", units=units, gradient_steps=0)).learn(
            STEPS
        )
        model.train(2 if backbone == "td3" else 1, 32)  # up to the first step of the actor
        losses[units] = model.logger.name_to_value["train/auxiliary_loss"]
        model.save(tmp_path / units)
        assert OURS[backbone].load(tmp_path / units).units == units
    assert losses["environment"] == 4.0 * losses["policy"]  # Pendulum's actions are within ±2


def test_a_setting_that_cannot_change_says_so():
    model = make(
        OURS["td3"],
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )
    for name, value in (
        ("eta", 2.0),
        ("rule", "pcgrad"),
        ("method", "plain"),
        ("mask_terminal", False),
    ):
        with pytest.raises(DamperError, match=f"^({name}|optimize_memory_usage) must be"):
            setattr(model, name, value)
    with pytest.raises(TypeError):
        model.method_settings["eta"] = 0.5
    with pytest.raises(AttributeError):
        model.method_settings = {}
    with pytest.raises(AttributeError, match="'TD3' object has no attribute 'lambda_T'"):
        _ = model.lambda_T
    assert model.eta == 1.0 and model.method == "damper"
    with pytest.raises(
        DamperError,
        match=r"^lambda_T is neither .* it belongs to the methods \(caps, .* takes .*eta",
    ):
        model.lambda_T = 0.5
    with pytest.raises(DamperError, match=r"^eta is neither .* method 'plain' takes no settings"):
        make(OURS["td3"], method="plain").eta = 0.5
    for wrong, meant in (("Eta", "eta"), ("etta", "eta"), ("mask_terminl", "mask_terminal")):
        sentence = f"^{wrong} is not a setting of method 'damper': did you mean '{meant}'"
        with pytest.raises(DamperError, match=sentence):
            setattr(model, wrong, 0)
    for name in ("note", "meta", "theta"):
        setattr(model, name, "an attribute like any other")


@pytest.mark.parametrize(
    ("loaded", "saved", "sentence"),
    [
        ("sac", "td3", "policy must be made for SAC, but TD3Policy is for TD3 or DDPG: use that"),
        ("ppo", "td3", "policy must be made for PPO, but TD3Policy is for TD3 or DDPG: use that"),
        ("td3", "ppo", "policy must be made for TD3, but ActorCriticPolicy is for PPO: use that"),
        ("sac", "tqc", "policy must be made for SAC, but TQCPolicy is for TQC: use that class"),
        ("tqc", "sac", "policy must be made for TQC, but SACPolicy is for SAC: use that class"),
    ],
)
def test_a_zip_of_another_algorithm_is_refused(loaded, saved, sentence, tmp_path):
    for kinds in (OURS, THEIRS):
        make(kinds[saved]).save(tmp_path / "model")
        with pytest.raises(DamperError, match=sentence):
            OURS[loaded].load(tmp_path / "model")


@BACKBONES
def test_models_pass_between_sb3s_classes_and_ours(backbone, tmp_path):
    theirs = make(THEIRS[backbone]).learn(STEPS)
    obs, actions = predictions(theirs)
    theirs.save(tmp_path / "theirs")
    ours = OURS[backbone].load(tmp_path / "theirs", env=theirs.get_env())
    assert ours.method == "damper"
    assert np.array_equal(ours.predict(obs, deterministic=True)[0], actions)
    ours.learn(STEPS)
    ours.save(tmp_path / "ours")
    back = THEIRS[backbone].load(tmp_path / "ours", env=theirs.get_env()).learn(STEPS)
    assert isinstance(back, stable_baselines3.common.off_policy_algorithm.OffPolicyAlgorithm)
