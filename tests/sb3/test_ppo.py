"""PPO: pairs that an environment made, combined on what acts, within SB3's own update."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import (
    FakeImageEnv,
    IdentityEnv,
    IdentityEnvBox,
    IdentityEnvMultiDiscrete,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

import damper
from damper.errors import DamperError
from damper.interface import Loss
from damper.losses.temporal import temporal
from damper.methods import Method
from damper.sb3 import PPO, IndexedRolloutBuffer, ppo
from damper.sb3.common.networks import OnPolicyActor, actor_parameters, evaluates_jointly
from tests.sb3.models import Counter, check_learned, dict_env, make, quiet, weights
from tests.sb3.test_behaviour import Noisy

SB3 = stable_baselines3.PPO
WORKING = (
    "damper",
    "scalarization",
    "bloop",
    "metabalance",
    "temporal-ramp",
    "caps",
    "grad-caps",
    "scalarization+l2c2",
)


def watching(previous: bool = False) -> tuple[Method, list[Any]]:
    """A method that keeps every batch that its loss sees."""
    seen: list[Any] = []

    def watch(policy: Any, batch: Any, noise: Any) -> torch.Tensor:
        seen.append(batch)
        return temporal(policy, batch, noise)

    return Method("watching", actor=Loss(watch, previous_obs=previous), rule="damper"), seen


# --- pairs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_no_false_pair_in_ten_thousand_steps(ends: str) -> None:
    """Observations are (episode, step), so that every pair tells whether an environment made it."""
    env = DummyVecEnv([lambda n=n: Counter(n, ends) for n in (1, 2, 5, 9)])
    method, seen = watching()
    make(PPO, env, method=method, n_epochs=1, n_steps=50, batch_size=200).learn(10_000)
    steps = np.concatenate([(batch.next_obs - batch.obs).numpy() for batch in seen])
    assert (steps == [0, 1]).all()
    # Per environment and rollout of 50 steps one observation has its successor outside; each
    # episode has one too few.
    kept = sum(50 - 1 - (49 // n) for n in (1, 2, 5, 9)) * (10_000 // 200)
    assert abs(len(steps) - kept) <= 0.02 * kept


def test_the_observation_before_is_known_or_there_is_none() -> None:
    method, seen = watching(previous=True)
    make(
        PPO, DummyVecEnv([lambda n=n: Counter(n) for n in (3, 7)]), method=method, n_epochs=1
    ).learn(400)
    before, now = (
        torch.cat([getattr(batch, name) for batch in seen]) for name in ("previous_obs", "obs")
    )
    first = now[:, 1] == 0
    assert first.any() and torch.equal(before[first], now[first])
    assert torch.equal(
        now[~first] - before[~first], torch.tensor([[0.0, 1.0]]).expand(int((~first).sum()), 2)
    )


@pytest.mark.parametrize("n_steps", [1, 4])
def test_a_rollout_s_last_observation_has_its_successor_too(n_steps: int) -> None:
    """Episodes of three and five steps have all pairs but the one across their end."""
    method, seen = watching()
    env = DummyVecEnv([lambda n=n: Counter(n) for n in (3, 5)])
    make(PPO, env, method=method, n_epochs=1, n_steps=n_steps, batch_size=2 * n_steps).learn(120)
    steps = np.concatenate([(batch.next_obs - batch.obs).numpy() for batch in seen])
    assert (steps == [0, 1]).all() and len(steps) == 60 * 2 // 3 + 60 * 4 // 5


def test_a_rollout_trained_on_again_does_not_pair_with_what_came_since() -> None:
    method, seen = watching()
    model = quiet(make(PPO, Counter(40), method=method, n_steps=25, n_epochs=1).learn(25))
    seen.clear()
    model._last_obs = model.env.reset()
    model.train()
    assert sum(len(batch.obs) for batch in seen) == 25
    assert all(((batch.next_obs - batch.obs) == torch.tensor([0.0, 1.0])).all() for batch in seen)


def test_a_rollout_put_in_by_hand_does_not_pair_with_what_the_last_one_ended_in() -> None:
    method, seen = watching()
    model = quiet(make(PPO, Counter(40), method=method, n_steps=25, n_epochs=1).learn(25))
    seen.clear()
    model.rollout_buffer.reset()
    for step in range(25):
        row = np.array([[7.0, step]], np.float32)
        model.rollout_buffer.add(
            row, np.zeros((1, 1)), np.zeros(1), np.zeros(1), *torch.zeros(2, 1)
        )
    model.train()
    assert sum(len(batch.obs) for batch in seen) == 24
    assert all(((batch.next_obs - batch.obs) == torch.tensor([0.0, 1.0])).all() for batch in seen)


def test_a_new_call_of_learn_makes_no_pair_with_the_old_episode() -> None:
    method, seen = watching()
    model = make(PPO, Counter(40), method=method, n_steps=25, n_epochs=1)
    for _ in range(3):
        model.learn(50)
    assert sum(len(batch.obs) for batch in seen) == 3 * (
        50 - 1
    )  # each call's 50 steps contain one episode's end
    assert all(((batch.next_obs - batch.obs) == torch.tensor([0.0, 1.0])).all() for batch in seen)


def test_minibatches_without_a_pair_train_as_sb3_does(exact: None) -> None:
    ours, theirs = (make(kind, Counter(1)).learn(100) for kind in (PPO, SB3))
    assert torch.equal(weights(ours), weights(theirs))


def test_a_buffer_of_ones_own() -> None:
    class Own(RolloutBuffer):
        pass

    class Told(IndexedRolloutBuffer):
        pass

    with pytest.raises(
        DamperError,
        match=r"rollout buffer.*Own does not: .*inherit from damper.sb3.IndexedRolloutBuffer",
    ):
        make(PPO, rollout_buffer_class=Own)
    make(PPO, rollout_buffer_class=Own, method="plain").learn(50)
    make(PPO, rollout_buffer_class=Told).learn(50)


@pytest.mark.parametrize("policy", ["MlpPolicy", "MultiInputPolicy"])
def test_the_buffer_stays_sb3s_own(policy: str) -> None:
    env = dict_env() if policy == "MultiInputPolicy" else Counter(5)
    model = make(PPO, env, policy=policy).learn(50)
    assert type(model.rollout_buffer) is (
        DictRolloutBuffer if policy == "MultiInputPolicy" else RolloutBuffer
    )


# --- gradients -----------------------------------------------------------------------------------


class Shared(BaseFeaturesExtractor):
    """Features that policy and value share."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 8)
        self.layer = nn.Linear(3, 8)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs).tanh()


@pytest.mark.parametrize("shared", [True, False])
def test_the_rule_combines_what_the_policy_depends_on(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: both gradients of each minibatch, DAMPER's formula, then SB3's clipping."""
    kwargs = {
        "features_extractor_class": Shared,
        "share_features_extractor": shared,
        "net_arch": [8],
    }
    model = quiet(make(PPO, eta=0.5, policy_kwargs=kwargs, max_grad_norm=0.1))
    names = {p: name for name, p in model.policy.named_parameters()}
    own, together = actor_parameters(model.policy)
    acting = [names[p] for p in own]
    heads = [
        "action_net.weight",
        "action_net.bias",
        "mlp_extractor.policy_net.0.weight",
        "mlp_extractor.policy_net.0.bias",
    ]
    extractor = {names[p] for p in model.policy.pi_features_extractor.parameters()}
    assert len(extractor) == 2 and {names[p] for p in together} == (extractor if shared else set())
    assert set(acting) == {"log_std", *heads, *(() if shared else extractor)}
    differentiate, original, checked = ppo.auxiliary_gradients, ppo.combine_gradients, []
    by_hand: dict[Any, torch.Tensor] = {}

    def watched_loss(loss: Any, parameters: Any) -> Any:
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        for p, g in zip(parameters, gradients, strict=True):
            by_hand[p] = torch.zeros_like(p) if g is None else g
        return differentiate(loss, parameters)

    def pair(parameters: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return flat([p.grad for p in parameters]), flat([by_hand[p] for p in parameters])

    def flat(parts: Any) -> torch.Tensor:
        return torch.cat([part.reshape(-1).double() for part in parts])

    def projected(g_R: torch.Tensor, g_T: torch.Tensor) -> torch.Tensor:
        return g_T - torch.clamp(g_R @ g_T, max=0.0) / (g_R @ g_R) * g_R

    def watched(gradients: Any, every: Any, *arguments: Any, **settings: Any) -> Any:
        parameters = every[: len(every) - settings["shared_count"]]
        assert list(map(id, every[len(parameters) :])) == list(map(id, together))
        g_R, g_T = pair(parameters)
        s_R, s_T = pair(together) if shared else (torch.ones(1), torch.ones(1))
        value = model.policy.value_net.weight.grad.clone()
        report = original(gradients, every, *arguments, **settings)
        n_R, n_T = g_R.norm(), g_T.norm()
        factor = n_R / n_T * torch.clamp(n_T / n_R, max=1.0) ** 0.5
        expected = g_R + factor * projected(g_R, g_T)
        torch.testing.assert_close(
            flat([p.grad for p in parameters]), expected, rtol=1e-4, atol=1e-6 * float(n_R)
        )
        if shared:  # the same factor, but no longer than SB3's own gradient there
            expected = s_R + torch.clamp(s_R.norm() / s_T.norm(), max=factor) * projected(s_R, s_T)
            atol = 1e-6 * float(s_R.norm())
            torch.testing.assert_close(
                flat([p.grad for p in together]), expected, rtol=1e-4, atol=atol
            )
        assert torch.equal(model.policy.value_net.weight.grad, value)
        checked.append(g_T[: len(model.policy.log_std)].abs().sum())
        assert acting[0] == "log_std"
        return report

    monkeypatch.setattr(ppo, "auxiliary_gradients", watched_loss)
    monkeypatch.setattr(ppo, "combine_gradients", watched)
    steps = []
    model.policy.optimizer.register_step_post_hook(
        lambda *_: steps.append(
            torch.cat([p.grad.reshape(-1) for p in model.policy.parameters()]).norm()
        )
    )
    model.learn(50)
    assert (
        len(checked) == 6 and sum(checked) == 0
    )  # exploration noise is no part of the mean action
    assert max(steps) <= 0.1 * (1 + 1e-4) and model.max_grad_norm == 0.1


@pytest.mark.parametrize("shared", [True, False])
def test_the_value_loss_does_not_lengthen_what_the_auxiliary_is_measured_by(shared: bool) -> None:
    kwargs = {
        "features_extractor_class": Shared,
        "share_features_extractor": shared,
        "net_arch": [8],
    }
    ratios = [
        quiet(
            make(
                PPO,
                policy_kwargs=kwargs,
                n_epochs=1,
                n_steps=50,
                batch_size=50,
                vf_coef=vf_coef,
                eta=0.5,
            )
        )
        .learn(50)
        .logger.name_to_value["train/norm_ratio"]
        for vf_coef in (0.5, 500.0)
    ]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-4)


def test_sb3s_stops_and_bounds_stay() -> None:
    for settings in (
        {"target_kl": 1e-4},
        {"normalize_advantage": False, "clip_range_vf": 0.1, "ent_coef": 0.01},
    ):
        model = quiet(make(PPO, learning_rate=0.01, n_epochs=20, **settings)).learn(50)
        names = set(model.logger.name_to_value)
        assert {
            "train/approx_kl",
            "train/explained_variance",
            "train/std",
            "train/cosine",
            "train/weight",
        } <= names
        assert model._n_updates < 20 or "target_kl" not in settings
        assert not hooked(model)


def hooked(model: Any) -> list[Any]:
    return [p for p in model.policy.parameters() if p._post_accumulate_grad_hooks]


def test_sb3_clips_once_when_both_gradients_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own call, with its own bound; what it clips already holds the auxiliary gradient."""
    model = quiet(make(PPO, n_epochs=2, n_steps=40, batch_size=20, max_grad_norm=0.1))
    original, added, clipped = ppo.AuxiliaryUpdate._combine, [], []

    def add(update: Any) -> None:
        original(update)
        added.append([p.grad.clone() for p in model.policy.parameters()])

    def clip(parameters: Any, max_norm: float) -> Any:
        parameters = list(parameters)
        clipped.append((max_norm, all(map(torch.equal, added[-1], [p.grad for p in parameters]))))
        return clip_grad_norm_(parameters, max_norm)

    clip_grad_norm_ = nn.utils.clip_grad_norm_
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", clip)
    monkeypatch.setattr(ppo.AuxiliaryUpdate, "_combine", add)
    model.learn(40)
    assert clipped == [(0.1, True)] * 4 and len(added) == 4


def test_an_interrupted_update_leaves_no_hook() -> None:
    model = quiet(make(PPO)).learn(50)
    model.policy.evaluate_actions = None
    with pytest.raises(TypeError):
        model.train()
    assert model.max_grad_norm == 0.5 and not hooked(model)


def test_dropout_and_batch_normalisation_stay_sb3s(exact: None) -> None:
    kwargs = {"features_extractor_class": Noisy, "net_arch": [8]}
    ours = make(PPO, policy_kwargs=kwargs, rule="scalarization", weight=0.0).learn(150)
    theirs = make(SB3, policy_kwargs=kwargs).learn(150)
    assert torch.equal(weights(ours), weights(theirs))
    for mine, other in zip(ours.policy.buffers(), theirs.policy.buffers(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(("method", "observations"), [("damper", 2), ("grad-caps", 3)])
@pytest.mark.parametrize("joint", [True, False])
def test_all_observations_of_a_pair_pass_through_the_policy_at_once(
    method: str, observations: int, joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not joint:
        monkeypatch.setattr(ppo, "evaluates_jointly", lambda policy: False)
    model = quiet(make(PPO, method=method, n_epochs=1, n_steps=60, batch_size=20))
    rows: list[int] = []
    model.policy.action_net.register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    model.learn(60)
    assert rows[:61] == [1] * 61  # one per step, and one to find out which parameters act
    if joint:  # with those of SB3's own loss
        assert len(rows) == 64 and all(20 < row <= 20 * observations for row in rows[61:])
        return
    theirs, ours = rows[61::2], rows[62::2]  # in turn, minibatch by minibatch
    assert theirs == [20, 20, 20]
    assert all(row % observations == 0 and 20 < row <= 20 * observations for row in ours)


@pytest.mark.parametrize("method", ["damper", "bloop", "grad-caps", "caps", "scalarization+l2c2"])
@pytest.mark.parametrize("extractor", [None, True, False])
def test_one_forward_pass_for_both_losses_is_two_up_to_rounding(
    method: str, extractor: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kwargs: dict[str, Any] = {"net_arch": [16, 16]}
    if extractor is not None:
        kwargs |= {"features_extractor_class": Shared, "share_features_extractor": extractor}

    def trained() -> Any:
        model = make(PPO, policy_kwargs=kwargs, method=method, ent_coef=0.01, clip_range_vf=0.2)
        return quiet(model).learn(100)

    once = trained()
    monkeypatch.setattr(ppo, "evaluates_jointly", lambda policy: False)
    twice = trained()
    assert (weights(once) - weights(twice)).norm() <= 1e-5 * weights(twice).norm()
    expected = twice.logger.name_to_value
    assert expected.keys() == once.logger.name_to_value.keys()
    for name, value in expected.items():
        if not name.startswith("time/"):
            assert once.logger.name_to_value[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    assert "evaluate_actions" not in vars(once.policy)


def test_other_policies_are_evaluated_by_their_own_code() -> None:
    class Own(ActorCriticPolicy):
        def evaluate_actions(self, obs: Any, actions: Any) -> Any:
            return super().evaluate_actions(obs, actions)

    squashed = {"net_arch": [8], "squash_output": True}
    picture = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=False)
    for model, expected in (
        (make(PPO), True),
        (make(PPO, picture, policy="CnnPolicy"), True),
        (make(PPO, policy=Own), False),
        (make(PPO, use_sde=True, policy_kwargs=squashed), False),
        (make(PPO, dict_env(), policy="MultiInputPolicy"), False),
    ):
        assert evaluates_jointly(model.policy) == expected


def test_observations_seen_at_once_get_the_actions_they_get_alone() -> None:
    model = make(PPO)
    policy, joined = OnPolicyActor(model.policy), torch.randn(12, 3)
    policy.join(joined, joined.chunk(2))
    for part in joined.chunk(2):
        torch.testing.assert_close(policy(part), OnPolicyActor(model.policy)(part))
    for part in policy._parts:
        torch.testing.assert_close(policy(part), model.policy.get_distribution(part).mode())
        torch.testing.assert_close(
            policy.distribution(part), OnPolicyActor(model.policy).distribution(part)
        )


def test_a_distribution_of_ones_own_is_asked_for_its_mode() -> None:
    class Doubled(ActorCriticPolicy):
        def _get_action_dist_from_latent(self, latent: torch.Tensor) -> Any:
            return self.action_dist.proba_distribution(2.0 * self.action_net(latent), self.log_std)

    obs = torch.randn(9, 3)
    once, twice = (
        OnPolicyActor(make(PPO, policy=policy).policy)(obs) for policy in ("MlpPolicy", Doubled)
    )
    torch.testing.assert_close(twice, 2.0 * once)


# --- methods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WORKING)
@pytest.mark.parametrize("sde", [False, True])
def test_methods_on_the_actor_train(method: str, sde: bool) -> None:
    kwargs = {"net_arch": [8], "squash_output": True} if sde else {"net_arch": [8]}
    model = quiet(make(PPO, method=method, use_sde=sde, sde_sample_freq=4, policy_kwargs=kwargs))
    before = weights(model).clone()
    model.learn(50)
    assert weights(model).isfinite().all() and not torch.equal(weights(model), before)
    assert "train/auxiliary_loss" in model.logger.name_to_value


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (
            "pave",
            r"loss on critics Q\(s, a\), while PPO's critic is V\(s\): "
            "choose one without a critic loss",
        ),
        ("l2c2", r"loss on critics Q\(s, a\).*: use its actor loss alone, as in auxiliary='l2c2'"),
        ("asap", "needs a second head on the actor"),
    ],
)
def test_others_say_why_not(method: str, sentence: str) -> None:
    with pytest.raises(DamperError, match=sentence):
        make(PPO, method=method)


def test_the_units_are_the_environment_s_unless_squashed() -> None:
    for squash, ratio in ((False, 1.0), (True, 4.0)):  # Pendulum's actions are within ±2
        losses = []
        for units in ("policy", "environment"):
            kwargs = {"net_arch": [8], "squash_output": squash}
            model = quiet(
                make(
                    PPO,
                    units=units,
                    rule="scalarization",
                    weight=0.0,
                    use_sde=squash,
                    policy_kwargs=kwargs,
                )
            )
            losses.append(model.learn(50).logger.name_to_value["train/auxiliary_loss"])
        assert losses[1] == pytest.approx(ratio * losses[0], rel=1e-5)


# --- spaces, wrappers, saving --------------------------------------------------------------------


def test_discrete_actions_are_refused_in_one_sentence() -> None:
    for env in (IdentityEnv(3), IdentityEnvMultiDiscrete(2)):
        with pytest.raises(
            DamperError,
            match=r"action space must be a Box .*Discrete.*: only method='plain' takes others",
        ):
            make(PPO, env)
    make(PPO, IdentityEnv(3), method="plain").learn(50)


@pytest.mark.parametrize("method", ["damper", "grad-caps"])
def test_dict_and_image_observations(method: str) -> None:
    picture = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=False)
    for env, policy in ((dict_env(), "MultiInputPolicy"), (picture, "CnnPolicy")):
        extractor = (
            {"features_extractor_kwargs": {"features_dim": 8}} if policy == "CnnPolicy" else {}
        )
        model = make(
            PPO,
            env,
            policy=policy,
            method=method,
            n_steps=16,
            batch_size=8,
            policy_kwargs=extractor,
        )
        check_learned(model, 32)
        assert isinstance(model.rollout_buffer, DictRolloutBuffer) == (policy == "MultiInputPolicy")


def test_matrix_actions() -> None:
    class Matrix(Counter):
        action_space = gymnasium.spaces.Box(-2.0, 2.0, (2, 2), np.float32)

    check_learned(make(PPO, Matrix()), 50)


def test_several_environments_normalisation_and_callbacks() -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=3), clip_obs=5.0)
    evaluation = VecNormalize(make_vec_env("Pendulum-v1"), training=False)
    callback = EvalCallback(evaluation, eval_freq=40, n_eval_episodes=1, verbose=0)
    model = make(PPO, env, learning_rate=lambda progress: 1e-3 * progress)
    check_learned(model, 300, callback=callback)
    assert callback.n_calls == 100 and callback.last_mean_reward != -np.inf
    evaluate_policy(model, env, n_eval_episodes=1, warn=False)


@pytest.mark.parametrize("method", ["damper", "caps", "bloop"])
def test_the_same_seed_twice_gives_the_same_weights(method: str) -> None:
    assert torch.equal(*(weights(make(PPO, method=method).learn(100)) for _ in range(2)))


@pytest.mark.parametrize("method", ["damper", "bloop"])
def test_saved_models_predict_alike_and_go_on(method: str, tmp_path: Any) -> None:
    model = make(PPO, method=method, **({"eta": 0.25} if method == "damper" else {})).learn(50)
    obs = np.stack([model.observation_space.sample() for _ in range(9)])
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=model.get_env())
    assert np.array_equal(
        loaded.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0]
    )
    assert loaded.method == method and loaded.method_settings == model.method_settings
    saved, now = (one.method_state.state_dict() for one in (model, loaded))
    assert saved.keys() == now.keys() and all(torch.equal(saved[name], now[name]) for name in saved)
    assert len(saved) == (method == "bloop") and all(memory.any() for memory in saved.values())
    before, memories = weights(loaded).clone(), [memory.clone() for memory in now.values()]
    assert not torch.equal(weights(loaded.learn(50)), before)
    assert not any(map(torch.equal, loaded.method_state.state_dict().values(), memories))
    if method == "damper":
        theirs = SB3.load(tmp_path / "model", env=model.get_env()).learn(50)
        theirs.save(tmp_path / "theirs")
        assert PPO.load(tmp_path / "theirs", eta=0.75).eta == 0.75


def test_a_model_without_an_environment_loads(tmp_path: Any) -> None:
    make(PPO).save(tmp_path / "model")
    model = PPO.load(tmp_path / "model")
    assert model.get_env() is None and damper.sb3.PPO is type(model)


def test_it_learns_at_its_default() -> None:
    """SB3's own bar on a task of unrelated observations, which η = 1 misses."""
    small = {
        "n_steps": 512,
        "n_epochs": 5,
        "batch_size": 64,
        "policy_kwargs": {"net_arch": [64, 64]},
    }
    model = make(PPO, IdentityEnvBox(eps=0.5), gamma=0.95, **small).learn(2000)
    assert evaluate_policy(model, model.get_env(), n_eval_episodes=5)[0] > 90
