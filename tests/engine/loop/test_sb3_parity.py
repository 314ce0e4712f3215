"""A whole run equals SB3's: acting, episodes' ends, replay, and which update comes when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytest.importorskip("stable_baselines3")
import stable_baselines3
from stable_baselines3.common.noise import ActionNoise

from damper.engine.data.random_streams import Streams
from damper.engine.envs.pool import unscale_action
from damper.engine.loop.trainer import Trainer
from damper.engine.settings import Settings, resolve
from tests.engine import sb3_reference

SEED, STEPS, ARCH, TOLERANCE = 3, 150, (16, 12), 1e-5
SHARED = (
    "buffer_size",
    "learning_starts",
    "batch_size",
    "tau",
    "gamma",
    "train_freq",
    "gradient_steps",
)
OWN = {"td3": ("policy_delay", "target_policy_noise", "target_noise_clip"), "sac": ("ent_coef",)}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("td3", {}),
    ("td3", {"train_freq": 3, "gradient_steps": 2, "policy_delay": 3}),
    (
        "td3",
        {"learning_starts": 0, "action_noise": 0.0, "target_policy_noise": 0.0, "policy_delay": 1},
    ),
    ("td3", {"buffer_size": 30, "batch_size": 64, "gamma": 1.0, "tau": 1.0}),
    ("sac", {}),
    ("sac", {"train_freq": 50, "gradient_steps": 30, "ent_coef": 0.2}),
    (
        "sac",
        {"buffer_size": 30, "gradient_steps": 3, "gamma": 0.0, "learning_rate": "linear:0.001:0"},
    ),
]


class Ends(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Episodes end by termination, by time, or both at once; bounds are not symmetric."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(
        np.array([-2.0, 0.5], np.float32), np.array([1.0, 4.0], np.float32)
    )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.time = self.np_random.normal(size=3), 0
        return self.state.astype(np.float32), {}

    def step(self, action: NDArray[np.float32]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        push, self.time = np.append(action, action[0] * action[1]), self.time + 1
        self.state = 0.9 * self.state + 0.1 * push + 0.1 * self.np_random.normal(size=3)
        terminated = bool(self.np_random.random() < 0.15)
        return (
            self.state.astype(np.float32),
            -float(self.state @ self.state),
            terminated,
            self.time >= 6,
            {},
        )


def model_like(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    """SB3's own class, whose actions, batches and noise come from the engine's random streams."""
    streams, acted, trained = Streams([SEED]), [0], [-1]
    names, act_dim = [*SHARED, *OWN[settings.backbone]], 2
    kind = {"td3": stable_baselines3.TD3, "sac": stable_baselines3.SAC}[settings.backbone]
    model = kind(
        "MlpPolicy",
        Ends(),
        **{name: getattr(settings, name) for name in names},
        learning_rate=settings.learning_rate,  # type: ignore[arg-type]
        policy_kwargs={"net_arch": list(ARCH), "activation_fn": torch.nn.SiLU},
        seed=SEED,
        device="cpu",
    )
    space, buffer, act = model.action_space, model.replay_buffer, model._sample_action
    acting, later = [False], iter(())

    def random_action() -> NDArray[np.float32]:
        drawn = streams.uniform("random", acted[0], (1, act_dim))[0, 0].numpy()
        return np.asarray(unscale_action(drawn, space.low, space.high))

    class Exploration(ActionNoise):
        def __call__(self) -> NDArray[np.float32]:
            return (
                settings.action_noise
                * streams.normal("exploration", acted[0], (1, act_dim))[0, 0].numpy()
            )

    def sample_action(*arguments: Any, **keywords: Any) -> Any:
        acting[0] = True
        found = act(*arguments, **keywords)
        acting[0], acted[0] = False, acted[0] + 1
        return found

    def sample(batch_size: int, env: Any = None) -> Any:
        nonlocal later
        trained[0], later = trained[0] + 1, iter(("policy", "target"))
        return buffer._get_samples(
            streams.integers("replay", trained[0], (batch_size,), buffer.size())[0].numpy()
        )

    def smoothing(action: torch.Tensor, mean: float, std: float) -> torch.Tensor:
        return action.copy_(
            mean + std * streams.normal("target", trained[0], tuple(action.shape))[0]
        )

    def rsample(gaussian: torch.distributions.Normal) -> torch.Tensor:
        purpose, counter = ("exploration", acted[0]) if acting[0] else (next(later), trained[0])
        return (
            gaussian.loc
            + gaussian.scale * streams.normal(purpose, counter, tuple(gaussian.loc.shape))[0]
        )

    monkeypatch.setattr(space, "sample", random_action)
    monkeypatch.setattr(model, "_sample_action", sample_action)
    monkeypatch.setattr(buffer, "sample", sample)
    monkeypatch.setattr(torch.Tensor, "normal_", smoothing)
    monkeypatch.setattr(torch.distributions.Normal, "rsample", rsample)
    if settings.backbone == "td3":
        model.action_noise = Exploration()
    return model


@pytest.mark.parametrize(("backbone", "given"), CASES, ids=str)
def test_a_whole_run_equals_sb3(
    backbone: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {
        "net_arch": ARCH,
        "batch_size": 16,
        "learning_starts": 40,
        "learning_rate": 1e-3,
        "steps": STEPS,
    }
    settings = resolve(Ends, backbone, "plain", (SEED,), **{**usual, **given})
    trainer, model = Trainer(settings, tmp_path / "run"), model_like(settings, monkeypatch)
    learner, buffer = trainer.learner, model.replay_buffer
    sb3_reference.load(learner, model, backbone)
    before = learner.state()["actor"].clone()
    trainer.train()
    model.learn(STEPS)
    assert learner.updates == model._n_updates > 20
    assert not torch.equal(learner.state()["actor"], before), "something was learned"
    parts = [
        buffer.observations[:, 0],
        buffer.actions[:, 0],
        buffer.next_observations[:, 0],
        buffer.rewards,
    ]
    rows = np.concatenate([*parts, buffer.dones * (1 - buffer.timeouts)], 1)[: buffer.size()]
    assert 0 < rows[:, -1].sum() < buffer.dones.sum(), "both kinds of ends"
    np.testing.assert_allclose(learner.replay.rows[:, 0, :-1], rows, rtol=TOLERANCE, atol=TOLERANCE)
    for name, theirs in sb3_reference.rows(model, learner, backbone).items():
        ours = learner.state()[name].reshape(-1)
        assert (ours - theirs).norm() <= TOLERANCE * theirs.norm(), name
