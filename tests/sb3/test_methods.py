"""Every method trains through the SB3 classes, or says in one sentence why not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

import damper
from damper.errors import DamperError
from damper.methods import Method
from tests.sb3.models import OURS, dict_env, make, quiet, weights

STEPS = 60
COMPOSED = ["damper+grad-caps", "pcgrad+caps+pave", "asap+l2c2"]


@pytest.mark.parametrize("method", [*damper.METHODS, *COMPOSED])
@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_every_method_trains(backbone, method):
    model = make(OURS[backbone], method=method)
    before = weights(model).clone()
    quiet(model).learn(STEPS)
    after = weights(model)
    assert after.isfinite().all() and not torch.equal(before, after)
    seen = {name.removeprefix("train/") for name in model.logger.name_to_value}
    assert {"actor_loss", "critic_loss"} <= seen
    assert ("auxiliary_loss" in seen) == bool(model._method.actor)
    assert ({"conflict", "cosine", "norm_ratio", "weight"} <= seen) == bool(model._method.rule)


@pytest.mark.parametrize("method", ["damper", "caps", "pave", "l2c2", "asap"])
def test_a_method_with_zero_weights_moves_as_plain_sb3_does(method):
    """What its losses and draws would do to SB3's random numbers shows here."""
    zero = {
        name: 0.0
        for name in damper.METHODS[method].settings()
        if name.startswith(("lambda_", "beta"))
    }
    zero = {name: value for name, value in zero.items() if name != "lambda_high"}
    if method == "damper":
        zero = {"rule": "scalarization", "weight": 0.0}
    plain = make(OURS["sac"], method="plain").learn(90)
    other = make(OURS["sac"], method=method, **zero).learn(90)
    assert np.array_equal(plain.replay_buffer.actions[:60], other.replay_buffer.actions[:60])
    assert (weights(plain) - weights(other)).norm() <= 1e-5 * weights(plain).norm()


def test_eta_reaches_the_rule():
    logs = {}
    for eta in (0.0, 1.0):
        model = quiet(make(OURS["td3"], eta=eta)).learn(STEPS)
        logs[eta] = model.logger.name_to_value
    assert logs[1.0]["train/weight"] == pytest.approx(1.0)
    assert logs[0.0]["train/weight"] == pytest.approx(
        min(logs[0.0]["train/norm_ratio"], 1.0), abs=0.3
    )
    assert logs[0.0]["train/weight"] != pytest.approx(1.0)


def test_parts_can_be_exchanged():
    assert (
        make(OURS["td3"], rule="pcgrad").method == "pcgrad+temporal"
        or make(OURS["td3"], rule="pcgrad")._method.rule == "pcgrad"
    )
    model = make(OURS["sac"], auxiliary="grad-caps", critic="pave", lambda_T=0.3, lambda_1=0.7)
    assert model.method == "damper+grad-caps+pave"
    assert (
        model._settings["actor"]["lambda_T"] == 0.3 and model._settings["critic"]["lambda_1"] == 0.7
    )


def test_a_rule_of_ones_own():
    def half(primary, auxiliary, *, share=0.5):
        return primary + share * auxiliary

    model = quiet(make(OURS["td3"], rule=half, share=0.25)).learn(STEPS)
    assert model._method.rule is half and "train/weight" in model.logger.name_to_value


def test_a_method_of_ones_own():
    loss = damper.losses.Loss(lambda policy, batch, noise: policy(batch.obs).square().mean())
    model = quiet(make(OURS["sac"], method=Method("small", actor=loss))).learn(STEPS)
    assert model.logger.name_to_value["train/auxiliary_loss"] > 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"method": "dampr"},
            "method must be one of damper.METHODS, but 'dampr' was given: did you mean 'damper'?",
        ),
        ({"learning_rte": 1e-3}, "learning_rte is neither .* did you mean 'learning_rate'?"),
        ({"method": "plain", "eta": 0.5}, "eta is neither .* method 'plain' takes no settings"),
        ({"eta": 1.5}, r"eta must be in \[0, 1\], but 1.5 was given"),
        (
            {"eta": "lin:0:1"},
            "eta must be a number, or a schedule such as linear:0:1, but 'lin:0:1' was given",
        ),
        (
            {"eta": None},
            "eta must be a number, or a schedule such as linear:0:1, but None was given",
        ),
        (
            {"learning_rate": "exp:1:0"},
            "learning_rate must be a number, or a schedule .*, but 'exp:1:0' was given",
        ),
        ({"learning_rate": "linear:1"}, "learning_rate as a schedule must read linear:START:END"),
        ({"method": "caps", "lambda_T": -1.0}, "lambda_T must be finite and at least 0"),
        (
            {"method": "plain", "critic": "pave"},
            "critic must be combined with a method that has an actor loss",
        ),
        ({"rule": "pcgra"}, "rule must .* did you mean 'pcgrad'?"),
        ({"auxiliary": "pave"}, "auxiliary must name a method with an actor loss"),
    ],
)
def test_mistakes_get_one_sentence(settings, sentence):
    with pytest.raises(DamperError, match=sentence):
        make(OURS["td3"], **settings)


@pytest.mark.parametrize("method", ["caps", "l2c2", "pave"])
def test_methods_that_move_observations_need_numbers(method):
    for env, policy in ((dict_env(), "MultiInputPolicy"), (image(), "CnnPolicy")):
        with pytest.raises(DamperError, match="must be a Box of floats"):
            make(
                OURS["td3"],
                env,
                policy=policy,
                method=method,
                policy_kwargs={"net_arch": [8]},
                buffer_size=100,
            )


def image() -> FakeImageEnv:
    return FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=False)


def test_pave_warns_of_relu():
    with pytest.warns(UserWarning, match="does nothing on ReLU critics"):
        make(OURS["td3"], method="pave", policy_kwargs={"net_arch": [8]})


@pytest.mark.parametrize("backbone", ["td3", "sac"])
def test_the_critic_s_loss_does_not_reach_an_extractor_that_the_actor_owns(backbone):
    class Extractor(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, 8)
            self.layer = torch.nn.Linear(3, 8)

        def forward(self, obs):
            return self.layer(obs).tanh()

    kwargs = {
        "net_arch": [8],
        "activation_fn": torch.nn.SiLU,
        "features_extractor_class": Extractor,
        "share_features_extractor": True,
    }
    model = quiet(make(OURS[backbone], method="damper+pave", policy_kwargs=kwargs)).learn(60)
    layer = model.critic.features_extractor.layer
    assert layer is model.actor.features_extractor.layer
    before, moved = (
        layer.weight.detach().clone(),
        torch.cat([p.reshape(-1) for p in model.critic.parameters()]),
    )
    model._update_actor = lambda *_: None
    layer.weight.grad = None
    model.train(2, 16)
    assert layer.weight.grad is None and torch.equal(layer.weight, before)
    assert not torch.equal(torch.cat([p.reshape(-1) for p in model.critic.parameters()]), moved)


def test_asap_needs_a_last_hidden_layer():
    from stable_baselines3.td3.policies import Actor, TD3Policy

    class Odd(Actor):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            self.body, self.mu = self.mu, None

        def forward(self, obs):
            return self.body(self.extract_features(obs, self.features_extractor))

    class OddPolicy(TD3Policy):
        def make_actor(self, features_extractor=None):
            return Odd(**self._update_features_extractor(self.actor_kwargs, features_extractor))

    make(OURS["td3"], policy=OddPolicy, method="damper").learn(STEPS)
    with pytest.raises(DamperError, match="last hidden layer can be found"):
        make(OURS["td3"], policy=OddPolicy, method="asap")
