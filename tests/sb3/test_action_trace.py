"""Smoothness of the policy's own actions in SB3's log, and the warning of a constant one."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.envs import IdentityEnv
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from damper import metrics
from damper.sb3 import PPO
from damper.sb3.common import log
from tests.sb3.models import NAMES, OURS, make, quiet


class Walk(gymnasium.Env[Any, Any]):
    """Random observations in episodes of ``length`` steps; actions in [-2, 4]."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 4.0, (2,), np.float32)

    def __init__(self, length: int = 7) -> None:
        self.length, self.count = length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self._observe(), 1.0, False, self.count == self.length, {}

    def _observe(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)


class Watcher(BaseCallback):
    """Asks for the deterministic action at every step, and scores whole episodes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: list[Any] = []

    def _on_training_start(self) -> None:
        self.running: list[list[Any]] = [[] for _ in range(self.training_env.num_envs)]

    def _on_step(self) -> bool:
        actions, _ = self.model.predict(self.model._last_obs, deterministic=True)
        random = self.num_timesteps - self.training_env.num_envs < getattr(
            self.model, "learning_starts", 0
        )
        for i, done in enumerate(self.locals["dones"]):
            self.running[i].append(None if random else actions[i])
            if done:
                self.episodes.append(self.running[i])
                self.running[i] = []
        return True

    def scores(self) -> list[tuple[float, float]]:
        scored = [e for e in self.episodes if not any(action is None for action in e)]
        space = self.training_env.action_space
        return [
            (metrics.mean_change(e, space.low, space.high), metrics.smoothness(e)) for e in scored
        ]


def scored(model: Any) -> list[tuple[float, float]]:
    return [(e["mean_change"], e["sm"]) for e in model.ep_info_buffer if "sm" in e]


@pytest.mark.parametrize("method", ["damper", "plain"])
@pytest.mark.parametrize("name", NAMES)
def test_the_scores_are_those_of_the_policy_s_own_actions(name: str, method: str) -> None:
    """Without exploration noise, random first actions and other environments."""
    envs = VecNormalize(DummyVecEnv([lambda n=n: Walk(n) for n in (7, 4, 1)]))
    settings: dict[str, Any] = {"method": method}
    if name in ("td3", "ddpg"):
        settings["action_noise"] = NormalActionNoise(np.zeros(2), 0.3 * np.ones(2))
    model, watcher = make(OURS[name], VecMonitor(envs), **settings), Watcher()
    evaluated = VecMonitor(VecNormalize(DummyVecEnv([Walk]), training=False))
    other = EvalCallback(evaluated, eval_freq=5, verbose=0)
    quiet(model).learn(240, callback=[other, watcher], log_interval=None)
    expected = watcher.scores()[-100:]  # SB3's window
    assert len(expected) > 40 and {0.0} < {change for change, _ in expected}
    np.testing.assert_allclose(scored(model), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_the_log_has_their_means_beside_the_return(name: str) -> None:
    model = quiet(make(OURS[name], Walk()))
    seen: dict[str, Any] = {}
    model.learn(100, log_interval=None)
    model.logger.dump = lambda step: seen.update(model.logger.name_to_value)
    model.dump_logs()
    changes, scores = zip(*scored(model), strict=True)
    assert seen["rollout/mean_change"] == pytest.approx(np.mean(changes)) and np.mean(changes) > 0
    assert seen["rollout/sm"] == pytest.approx(np.mean(scores)) and "rollout/ep_rew_mean" in seen


def test_squashed_actions_are_in_the_environment_s_units() -> None:
    watcher = Watcher()
    kwargs = {"net_arch": [8], "squash_output": True}
    model = make(PPO, Walk(), use_sde=True, policy_kwargs=kwargs).learn(100, callback=watcher)
    np.testing.assert_allclose(scored(model), watcher.scores(), rtol=1e-4, atol=1e-6)


def test_compiled_policies_are_scored_too() -> None:
    model = make(PPO, Walk())
    model.policy = torch.compile(model.policy, backend="eager")
    assert len(scored(model.learn(50))) == 7


def test_only_the_last_steps_and_the_first_environments_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "ENVS", 2)
    trace = log.ActionTrace(Walk.action_space, lambda actions: actions)
    trace._steps = type(trace._steps)(maxlen=5)
    generator = np.random.default_rng(0)
    actions = generator.uniform(-2, 4, (9, 3, 2)).astype(np.float32)
    infos: list[dict[str, Any]] = [{} for _ in range(3)]
    with trace.watch(layer := torch.nn.Identity()):
        for t, row in enumerate(actions):
            layer(torch.as_tensor(row))
            infos = [{"episode": {}} if t == 8 else {} for _ in range(3)]
            assert trace.end_step(np.array([t == 8] * 3), infos) == (t == 8)
    expected = [metrics.smoothness(actions[4:, i]) for i in range(2)]
    assert [info["episode"].get("sm") for info in infos] == [*map(pytest.approx, expected), None]
    assert not trace._steps and not layer._forward_hooks


def test_discrete_actions_are_not_scored() -> None:
    model = make(PPO, IdentityEnv(3), method="plain").learn(200)
    assert model.ep_info_buffer and not scored(model)


# --- the warning ---------------------------------------------------------------------------------


def constant(model: Any) -> Any:
    """The model with an actor that sees nothing and does not move."""
    for module in model.policy.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data.zero_()
            module.weight.requires_grad_(False)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_action_is_warned_of_once(name: str) -> None:
    model = constant(make(OURS[name], Walk(), eta=0.5))
    sentence = r"held one constant action in each of its last 10 episodes.*lower eta \(now 0.5\)"
    sentence += ", or raise batch_size" if name == "ppo" else ", and"
    with pytest.warns(UserWarning, match=sentence):
        model.learn(300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(300, reset_num_timesteps=False)


def test_the_warning_waits_until_the_run_is_under_way() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        early = constant(make(OURS["td3"], Walk()))
        early.learn(1000, callback=lambda here, _: here["self"].num_timesteps < 95)
        make(OURS["td3"], Walk()).learn(300)
