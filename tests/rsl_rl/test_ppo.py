"""rsl_rl's PPO, smooth: the real package on pendulums that swing together on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("rsl_rl")
from rsl_rl import algorithms
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict
from torch import distributed, multiprocessing

from damper.errors import DamperError
from damper.interface import Loss
from damper.losses.temporal import temporal
from damper.methods import Method
from damper.rsl_rl import PPO, ppo
from tests.rsl_rl.pendulums import Pendulums, config, train, weights

SILENT = Method(
    "silent", actor=Loss(lambda *inputs, **k: 0.0 * temporal(*inputs, **k)), rule="damper"
)
PLAIN = {"class_name": "PPO"}


def mirrored(env: Any, obs: TensorDict | None, actions: torch.Tensor | None) -> tuple[Any, Any]:
    """Samples, then their mirror images."""
    if obs is not None:
        other = obs.clone()
        other["policy"] = obs["policy"] * torch.tensor([1.0, -1.0])
        other["speed"] = -obs["speed"]
        obs = torch.cat([obs, other])
    return obs, None if actions is None else torch.cat([actions, -actions])


SYMMETRY = {
    "data_augmentation_func": mirrored,
    "use_data_augmentation": True,
    "use_mirror_loss": True,
}
SYMMETRY["mirror_loss_coeff"] = 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"schedule": "fixed", "normalize_advantage_per_mini_batch": True, "symmetry_cfg": SYMMETRY},
    ],
    ids=["usual", "symmetry"],
)
def test_plain_and_silenced_equal_rsl_rl_bit_for_bit(settings: dict[str, Any]) -> None:
    theirs = train(**PLAIN, **settings)
    for method in ("plain", SILENT):
        ours = train(method=method, **settings)
        assert torch.equal(weights(ours), weights(theirs))
        states = (runner.alg.optimizer.state.values() for runner in (ours, theirs))
        for mine, other in zip(*states, strict=True):
            assert torch.equal(mine["exp_avg"], other["exp_avg"]) and torch.equal(
                mine["exp_avg_sq"], other["exp_avg_sq"]
            )
        assert (
            ours.alg.learning_rate == theirs.alg.learning_rate
            and ours.alg.max_grad_norm == theirs.alg.max_grad_norm
        )
    assert not torch.equal(weights(train(**settings)), weights(theirs))


def test_no_false_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group "tag" holds (episode, step): pairs tell whether an environment made them."""
    seen: list[Any] = []

    def watch(policy: Any, batch: Any, noise: Any) -> torch.Tensor:
        seen.append(batch)
        return temporal(policy, batch, noise)

    method = Method("watching", actor=Loss(watch, previous_obs=True), rule="damper")
    runner = train(10, Pendulums(length=7), method=method, num_learning_epochs=1)  # 10,240 steps
    before, now, after = (
        torch.cat([getattr(batch, name)["tag"] for batch in seen])
        for name in ("previous_obs", "obs", "next_obs")
    )
    assert ((after - now) == torch.tensor([0.0, 1.0])).all()
    first = now[:, 1] == 0
    assert (
        torch.equal(before[first], now[first])
        and ((now - before)[~first] == torch.tensor([0.0, 1.0])).all()
    )
    assert (
        0.6 * 10_240 < len(now) < 0.86 * 10_240
    )  # all but ends of episodes, and the rollouts' first and last steps
    assert set(runner.alg.storage.observations.keys()) == {"policy", "speed", "tag"}
    assert (
        runner.alg.storage.mini_batch_generator.__func__
        is type(runner.alg.storage).mini_batch_generator
    )


def test_the_rule_combines_the_actor_s_gradients_before_clipping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, checked = ppo.backward_auxiliary, []

    def watched(loss: Any, parameters: Any, rule: str, state: Any, **settings: Any) -> Any:
        parameters = list(parameters)
        g_R = torch.cat([p.grad.reshape(-1).double() for p in parameters])
        parts = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        parts = [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, parts, strict=True)
        ]
        g_T = torch.cat([part.reshape(-1).double() for part in parts])
        report = original(loss, parameters, rule, state, **settings)
        combined = torch.cat([p.grad.reshape(-1).double() for p in parameters])
        n_R, n_T = g_R.norm(), g_T.norm()
        projected = g_T - torch.clamp(g_R @ g_T, max=0.0) / n_R**2 * g_R
        expected = g_R + n_R / n_T * torch.clamp(n_T / n_R, max=1.0) ** 0.5 * projected
        torch.testing.assert_close(combined, expected, rtol=1e-4, atol=1e-6 * float(n_R))
        checked.append(float(n_R))
        return report

    monkeypatch.setattr(ppo, "backward_auxiliary", watched)
    runner = train(1, eta=0.5, max_grad_norm=1e-3)
    assert len(checked) == 4 and min(checked) > 1e-3
    for model in (runner.alg.actor, runner.alg.critic):
        norm = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()
        assert float(norm) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize(
    "method",
    ["damper", "scalarization", "bloop", "metabalance", "caps", "grad-caps", "damper+l2c2"],
)
def test_methods_on_the_actor_train_and_are_logged(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: dict[str, float] = {}
    update = PPO.update
    monkeypatch.setattr(PPO, "update", lambda self: logged.update(update(self)) or dict(logged))
    runner = train(3, method=method)
    assert weights(runner).isfinite().all()
    assert {
        "surrogate",
        "auxiliary_loss",
        "conflict",
        "cosine",
        "norm_ratio",
        "weight",
    } <= logged.keys()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"method": "pave"},
            r"critics Q\(s, a\), while PPO's critic is V\(s\): choose one without a critic loss",
        ),
        ({"method": "l2c2"}, "use its actor loss alone, as in auxiliary='l2c2'"),
        ({"method": "asap"}, "needs a second head"),
        ({"method": "temporal-ramp"}, "iterations must be given for method 'temporal-ramp'"),
        ({"eta": "linear:0:1"}, "iterations must be given for a schedule of eta"),
        ({"eta": "linear:0:2", "iterations": 10}, r"eta must be in \[0, 1\]"),
        ({"eta": "lin:0:1", "iterations": 10}, "eta must be a number, or a schedule such as"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"eta": 1.5}, r"eta must be in \[0, 1\]"),
        (
            {"clip_parm": 0.1},
            "clip_parm is neither an argument of rsl_rl's PPO nor .* did you mean 'clip_param'?",
        ),
    ],
)
def test_mistakes_get_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DamperError, match=sentence):
        train(1, **settings)


def test_too_short_rollouts_are_refused() -> None:
    with pytest.raises(DamperError, match="num_steps_per_env must be at least 2"):
        train(1, cfg={**config(), "num_steps_per_env": 1})


def test_minibatches_without_a_pair_train_as_rsl_rl_does() -> None:
    ours, theirs = (train(3, Pendulums(length=1), **settings) for settings in ({}, PLAIN))
    assert torch.equal(weights(ours), weights(theirs))


def one_of_two_processes(rank: int, folder: str) -> None:
    """Two processes with half of the environments each; one's episodes are a single step long."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    torch.set_num_threads(1)
    env = Pendulums(8, length=1 if rank else 40, seed=rank)
    torch.manual_seed(3)
    cfg = {
        **config(eta=0.5),
        "multi_gpu": {"global_rank": rank, "local_rank": rank, "world_size": 2},
    }
    obs = env.get_observations()
    alg = PPO.construct_algorithm(obs, env, cfg, "cpu")
    alg.broadcast_parameters()
    for _ in range(2):
        with torch.inference_mode():
            for _ in range(16):
                obs, rewards, dones, extras = env.step(alg.act(obs))
                alg.process_env_step(obs, rewards, dones, extras)
            alg.compute_returns(obs)
        logged = alg.update()
    found = torch.cat([p.detach().reshape(-1) for p in alg.actor.parameters()])
    torch.save({"weights": found, "logged": logged}, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_stay_alike(tmp_path: Any) -> None:
    multiprocessing.spawn(one_of_two_processes, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert torch.equal(first["weights"], second["weights"])
    assert first["logged"]["norm_ratio"] == second["logged"]["norm_ratio"] > 0


@pytest.mark.parametrize("method", ["plain", "damper"])
def test_the_critic_learns_while_the_actor_is_frozen(method: str) -> None:
    runner = OnPolicyRunner(Pendulums(), config(method=method), device="cpu")
    for parameter in runner.alg.actor.parameters():
        parameter.requires_grad_(False)
    before = [
        [p.clone() for p in model.parameters()] for model in (runner.alg.actor, runner.alg.critic)
    ]
    runner.learn(1)
    actor, critic = ([*model.parameters()] for model in (runner.alg.actor, runner.alg.critic))
    assert all(map(torch.equal, actor, before[0])) and not any(map(torch.equal, critic, before[1]))


def test_schedules_run_over_the_iterations(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    logged: list[float] = []
    update = PPO.update

    def recorded(self: Any) -> dict[str, float]:
        losses = update(self)
        logged.append(losses["eta"])
        return losses

    monkeypatch.setattr(PPO, "update", recorded)
    settings = config(eta="linear:0.8:0")
    runner = train(3, cfg={**settings, "max_iterations": 4})
    assert logged == pytest.approx([0.8, 0.6, 0.4])
    assert runner.alg._settings["rule"]["eta"] == logged[-1]
    runner.logger.save_model = lambda *_: None
    runner.save(str(tmp_path / "model.pt"))
    saved = torch.load(tmp_path / "model.pt", weights_only=True)["damper"]
    assert saved["trained_with"][0]["settings"]["eta"] == "linear:0.8:0"
    resumed = train(0, cfg={**config(eta="linear:0.8:0"), "max_iterations": 4})
    resumed.load(str(tmp_path / "model.pt"))
    resumed.learn(2)
    assert logged[3:] == pytest.approx([0.2, 0.0])
    # The algorithm's own number has priority over the runner's.
    train(2, cfg={**config(eta="linear:0.8:0", iterations=2), "max_iterations": 4})
    assert logged[5:] == pytest.approx([0.8, 0.4])


def test_a_weight_that_grows_with_the_iterations_trains() -> None:
    runner = train(2, method="temporal-ramp", iterations=2)
    assert runner.alg.trained_with[0]["method"] == "temporal-ramp"
    assert not torch.equal(weights(runner), weights(train(2, method="plain")))


def test_it_can_take_the_place_of_rsl_rl_s_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "PPO", PPO)
    runner = train(1, class_name="PPO", eta=0.5)
    assert type(runner.alg) is PPO and runner.alg.method_settings["eta"] == 0.5


def with_images(**algorithm: Any) -> dict[str, Any]:
    cfg = config(**algorithm)
    cfg["obs_groups"] = {"actor": ["policy", "camera"], "critic": ["policy", "camera"]}
    convolutions = {"output_channels": [4], "kernel_size": 3, "stride": 2}
    for model in ("actor", "critic"):
        cfg[model] |= {"class_name": "CNNModel", "cnn_cfg": convolutions}
    return cfg


class PendulumsWithCamera(Pendulums):
    """Pendulums with an image whose brightness tells the speed."""

    def get_observations(self) -> TensorDict:
        obs = super().get_observations()
        obs["camera"] = obs["speed"].reshape(-1, 1, 1, 1).expand(-1, 1, 8, 8)
        return obs


def test_convolutions_train_and_cannot_be_perturbed() -> None:
    runner = train(1, PendulumsWithCamera(), with_images(eta=0.5))
    assert weights(runner).isfinite().all()
    for settings in ({"method": "caps"}, {"auxiliary": "l2c2"}):
        with pytest.raises(DamperError, match="must be vectors, but group 'camera' is not"):
            train(0, PendulumsWithCamera(), with_images(**settings))


def test_learners_of_one_process_draw_their_own_noise() -> None:
    torch.manual_seed(3)
    learners = [
        OnPolicyRunner(Pendulums(4), config(method="caps"), device="cpu").alg for _ in range(2)
    ]
    first, second = (torch.randn(8, generator=learner._generator) for learner in learners)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    again = OnPolicyRunner(Pendulums(4), config(method="caps"), device="cpu").alg
    assert torch.equal(torch.randn(8, generator=again._generator), first)


def test_eta_is_0_unless_given() -> None:
    found = [
        train(0, **settings).alg.method_settings.get("eta")
        for settings in ({}, {"eta": 1.0}, {"method": "caps"})
    ]
    assert found == [0.0, 1.0, None]


def test_the_value_loss_has_no_say_through_an_encoder_that_both_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[float] = []
    update = PPO.update
    monkeypatch.setattr(
        PPO, "update", lambda self: (found := update(self), told.append(found["norm_ratio"]))[0]
    )
    for value_loss_coef in (1.0, 1000.0):
        torch.manual_seed(3)
        own = config(
            eta=0.5, num_learning_epochs=1, num_mini_batches=1, value_loss_coef=value_loss_coef
        )
        runner = OnPolicyRunner(Pendulums(), own, device="cpu")
        runner.alg.critic.mlp[0] = runner.alg.actor.mlp[0]
        before = runner.alg.actor.mlp[0].weight.detach().clone()
        runner.learn(1)
        assert not torch.equal(runner.alg.actor.mlp[0].weight, before)
    assert told[0] == pytest.approx(told[1], rel=1e-4)
