"""RecurrentPPO: pairs within sequences, the LSTM's state carried along."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("sb3_contrib")
import sb3_contrib
from stable_baselines3.common.envs import IdentityEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import damper
import damper.export
from damper.errors import DamperError
from damper.interface import Loss
from damper.losses.temporal import temporal
from damper.methods import Method
from damper.sb3 import RecurrentPPO
from tests.sb3.models import Counter, dict_env, weights

SILENT = Method(
    "silent", actor=Loss(lambda *inputs, **k: 0.0 * temporal(*inputs, **k)), rule="damper"
)


def make(kind: type = RecurrentPPO, env: Any = "Pendulum-v1", **settings: Any) -> Any:
    memory = {"lstm_hidden_size": 8, "net_arch": [8], **settings.pop("policy_kwargs", {})}
    small = {"n_steps": 40, "batch_size": 32, "n_epochs": 2, "seed": 1, "device": "cpu"}
    policy = settings.pop("policy", "MlpLstmPolicy")
    return kind(policy, env, policy_kwargs=memory, **{**small, **settings})


KINDS = {
    "two LSTMs": {},
    "a shared LSTM": {"shared_lstm": True, "enable_critic_lstm": False},
    "no LSTM for the critic": {"enable_critic_lstm": False},
    "features apart": {"share_features_extractor": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_plain_and_silenced_equal_sb3_contrib_bit_for_bit(kind: str) -> None:
    settings = {"policy_kwargs": KINDS[kind]}
    stock = make(sb3_contrib.RecurrentPPO, **settings).learn(160)
    for method in ("plain", SILENT):
        assert torch.equal(weights(make(method=method, **settings).learn(160)), weights(stock))
    smooth = make(eta=0.5, **settings).learn(160)
    assert weights(smooth).isfinite().all()
    assert not torch.equal(weights(smooth), weights(stock))


@pytest.mark.parametrize("previous", [False, True])
def test_pairs_are_the_actions_of_a_rollout(previous: bool) -> None:
    """With a learning rate of 0 the means must be those that the rollout's policy acted on."""
    seen: list[list[tuple[np.ndarray, np.ndarray]]] = []
    acted: dict[tuple[float, ...], float] = {}

    def watch(policy: Any, batch: Any, noise: Any) -> torch.Tensor:
        steps = [batch.obs, batch.next_obs, *([batch.previous_obs] if previous else [])]
        seen.append([(obs.numpy(), policy(obs).detach().numpy()[:, 0]) for obs in steps])
        return temporal(policy, batch, noise)

    def counter(length: int) -> Counter:
        env = Counter(length)
        env.episode = 1000 * length  # tells the environments apart
        return env

    lengths = (1, 2, 5, 60)
    env = DummyVecEnv([lambda n=n: counter(n) for n in lengths])
    method = Method("watching", actor=Loss(watch, previous_obs=previous), rule="damper")
    model = make(env=env, method=method, learning_rate=0.0, n_epochs=1, batch_size=37)
    forward = model.policy.forward

    def recorded(obs: torch.Tensor, states: Any, starts: torch.Tensor, *rest: Any) -> Any:
        means = model.policy.get_distribution(obs, states.pi, starts)[0].mode()
        for row, mean in zip(obs.tolist(), means, strict=True):
            acted[tuple(row)] = float(mean)
        return forward(obs, states, starts, *rest)

    model.policy.forward = recorded
    model.learn(480)
    count = 0
    for (now, mu), (after, mu_next), *before in seen:
        assert (after - now == [0, 1]).all()
        expected = [(now, mu), (after, mu_next)]
        if before:
            first = now[:, 1] == 0
            assert (before[0][0][first] == now[first]).all()
            assert (now[~first] - before[0][0][~first] == [0, 1]).all()
            expected += before
        for rows, means in expected:
            np.testing.assert_allclose(means, [acted[tuple(row)] for row in rows], atol=1e-6)
        count += len(now)
    # All pairs within a rollout, but for those that a minibatch's border cuts.
    pairs = 3 * sum(40 - 1 - (39 // n) for n in lengths)
    assert 0.8 * pairs < count < pairs


@pytest.mark.parametrize("method", ["bloop", "scalarization", "grad-caps", "temporal-ramp"])
def test_methods_on_the_mean_action_train(method: str) -> None:
    model = make(method=method).learn(80)
    assert weights(model).isfinite().all()
    assert model.logger.name_to_value["train/auxiliary_loss"] >= 0
    if method == "bloop":
        assert model.method_state.rule_state.abs().max() > 0


def test_dict_observations_and_gsde_train() -> None:
    model = make(env=dict_env(), policy="MultiInputLstmPolicy", eta=0.5, n_steps=16, batch_size=8)
    assert weights(model.learn(16)).isfinite().all()
    model = make(use_sde=True, eta=0.5, policy_kwargs={"squash_output": True}).learn(40)
    assert weights(model).isfinite().all()


def test_saved_models_go_on(tmp_path: Path) -> None:
    model = make(method="bloop").learn(80)
    model.save(tmp_path / "model")
    again = RecurrentPPO.load(tmp_path / "model", env=model.env)
    assert torch.equal(weights(again), weights(model))
    assert torch.equal(again.method_state.rule_state, model.method_state.rule_state)
    assert again.method == "bloop"
    again.learn(40)


def test_zips_pass_between_the_classes(tmp_path: Path) -> None:
    model = make().learn(40)
    model.save(tmp_path / "ours")
    stock = sb3_contrib.RecurrentPPO.load(tmp_path / "ours", device="cpu")
    assert torch.equal(weights(stock), weights(model))
    stock.save(tmp_path / "stock")
    again = RecurrentPPO.load(tmp_path / "stock", env=model.env, eta=0.5)
    assert torch.equal(weights(again.learn(0)), weights(model)) and again.eta == 0.5


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "caps"}, "also depends on those before"),
        ({"auxiliary": "l2c2"}, "also depends on those before"),
        ({"method": "pave"}, "PPO's critic is V"),
        ({"method": "asap"}, "needs a second head"),
        ({"eta": 2.0}, r"eta must be in \[0, 1\]"),
        ({"env": IdentityEnv(2)}, "the action space must be a Box"),
    ],
)
def test_mistakes_get_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DamperError, match=sentence):
        make(**settings)


def test_losses_at_other_observations_are_refused() -> None:
    loss = Loss(lambda policy, batch, noise: policy(batch.obs.clone()).square().mean())
    model = make(method=Method("elsewhere", actor=loss, rule="damper"))
    with pytest.raises(DamperError, match="evaluates the policy at observations that are not in"):
        model.learn(40)


def test_evaluation_and_export_are_refused(tmp_path: Path) -> None:
    model = make()
    with pytest.raises(DamperError, match="carries a memory from step to step"):
        damper.evaluate(model, episodes=1)
    with pytest.raises(DamperError):
        damper.export.export(model, tmp_path / "policy.onnx")


def test_arguments_are_sb3_contrib_s_and_the_docstring_s_example_runs() -> None:
    stock = inspect.signature(sb3_contrib.RecurrentPPO.__init__).parameters
    ours = inspect.signature(RecurrentPPO.__init__).parameters
    for name, parameter in stock.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default), name
    doc = inspect.getdoc(RecurrentPPO)
    example = doc.split("Example:")[1]
    names: dict[str, Any] = {}
    exec("\n".join(line.strip().removeprefix(">>> ") for line in example.splitlines()), names)
    assert names["model"].num_timesteps == 32


def test_it_learns_what_memory_is_needed_for() -> None:
    """The first observation tells the action that is right later on."""
    model = make(
        env=DummyVecEnv([Recall] * 8),
        eta=0.0,
        n_steps=32,
        batch_size=128,
        n_epochs=10,
        learning_rate=1e-2,
        gamma=0.5,
    )
    model.learn(32 * 8 * 25)
    rewards = []
    for seed in range(20):
        env, state, done = Recall(), None, False
        obs, _ = env.reset(seed=seed)
        start = np.ones(1, bool)
        while not done:
            action, state = model.predict(obs, state, start, deterministic=True)
            start = np.zeros(1, bool)
            obs, reward, done, _, _ = env.step(action)
            rewards.append(reward)
    assert np.mean(rewards) > -0.25  # without memory -1


class Recall(gymnasium.Env[np.ndarray, np.ndarray]):
    """The first observation is −1 or 1, the others 0; the right action is always the first."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.right, self.count = float(self.np_random.choice([-1.0, 1.0])), 0
        return np.array([self.right], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        reward = -((float(action[0]) - self.right) ** 2)
        return np.zeros(1, np.float32), reward, self.count == 4, False, {}
