"""``norm_obs``: observations normalised as by SB3's VecNormalize, by each agent's statistics."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import damper
from damper.engine.loop.acting import Acting
from damper.engine.loop.trainer import Trainer
from damper.engine.train import default_folder
from damper.errors import DamperError
from damper.export import export
from damper.policies.normaliser import Normaliser
from damper.policies.opening import open_policy
from damper.policies.policy import Policy
from damper.provenance import digest
from paper.experiments.identity import deviations, identity
from tests.engine import killed_run, small

OBS = (
    np.random.default_rng(0)
    .normal([3.0, -50.0, 0.01], [2.0, 0.5, 1e-4], (400, 2, 3))
    .astype(np.float32)
)


def learner(**given: Any) -> Any:
    return small.learner(small.settings(method="grad-caps", norm_obs=True, **given))


def observed(trainer: Trainer) -> list[np.ndarray]:
    """Every observation that the agents act on, from now on."""
    seen: list[np.ndarray] = []
    start = trainer.acting.start
    trainer.acting.start = lambda obs: (seen.append(obs.copy()), start(obs))[1]  # type: ignore[method-assign]
    return seen


def same_bits(ours: Trainer, theirs: Trainer) -> None:
    for name, tensor in ours.learner.state().items():
        torch.testing.assert_close(tensor, theirs.learner.state()[name], rtol=0, atol=0, msg=name)


# --- as SB3 does ----------------------------------------------------------------------------------


def test_statistics_are_sb3_s_bit_for_bit() -> None:
    made = learner()
    acting, theirs = Acting(made), [RunningMeanStd(shape=(3,)) for _ in range(2)]
    for obs in OBS:
        acting.act(obs)
        for agent, rms in enumerate(theirs):
            rms.update(obs[agent : agent + 1])
    for agent, rms in enumerate(theirs):
        assert made.obs_rms.mean[agent].tolist() == rms.mean.tolist()
        assert made.obs_rms.var[agent].tolist() == rms.var.tolist()
        assert made.obs_rms.count[agent].item() == rms.count
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    env.obs_rms = theirs[0]
    far = OBS[:, 0] + np.float32([0, 8, 0])
    ours = made.normalise(torch.tensor(np.stack((far, far))))[0].numpy()
    np.testing.assert_allclose(ours, env.normalize_obs(far), rtol=1e-6)
    assert ours.max() == 10.0, "clipped as SB3's"
    np.testing.assert_array_equal(ours, made.obs_rms.normalisers()[0](far))


def test_agents_act_on_what_they_have_just_seen_and_learn_from_raw_rows(tmp_path: Path) -> None:
    trainer = Trainer(small.settings(method="grad-caps", norm_obs=True, steps=60), tmp_path)
    seen = observed(trainer)
    trainer.train()
    made = trainer.learner
    assert made.obs_rms.count.tolist() == [[pytest.approx(60, abs=1e-3)]] * 2, (
        "one observation at every step"
    )
    replay = made.replay.gather(torch.arange(60).expand(2, -1), previous_obs=True)
    np.testing.assert_array_equal(replay.obs.numpy(), np.stack(seen, 1))
    np.testing.assert_allclose(made.obs_rms.mean.numpy(), np.mean(seen, 0), atol=1e-5)
    sampled = dict(zip(replay._fields, made.sample()[0], strict=True))
    index = made.streams.integers("replay", made.state()["updates"], (16,), torch.tensor(60))
    raw = made.replay.gather(index, previous_obs=True)
    for name in ("obs", "next_obs", "previous_obs"):
        torch.testing.assert_close(
            sampled[name], made.obs_rms.normalise(getattr(raw, name)), rtol=0, atol=0
        )
    assert torch.equal(sampled["reward"], raw.reward) and torch.equal(sampled["action"], raw.action)


def test_a_mean_action_is_the_network_s_on_the_normalised_observation() -> None:
    made = learner()
    acting = Acting(made)
    for obs in OBS[:5]:
        _, _, mean = acting.act(obs)
    expected = made.networks.actor()(made.obs_rms.normalise(torch.tensor(OBS[4])[:, None]))[:, 0]
    np.testing.assert_array_equal(mean, expected.detach().numpy())


# --- agents apart, however they run ---------------------------------------------------------------


def test_an_agent_s_statistics_are_its_own(tmp_path: Path) -> None:
    together, alone = (
        Trainer(small.settings(norm_obs=True, steps=100, seeds=seeds), tmp_path / str(len(seeds)))
        for seeds in ((3, 5), (5,))
    )
    for trainer in (together, alone):
        trainer.train()
    for name in ("obs_mean", "obs_var", "obs_count"):
        ours, theirs = (trainer.learner.state()[name] for trainer in (together, alone))
        torch.testing.assert_close(ours[1], theirs[0], rtol=1e-5, atol=1e-6)
        assert name == "obs_count" or not torch.equal(ours[0], ours[1])
    for name in together.learner.state():
        pairs = (small.pieces(t.learner, name, agent) for t, agent in ((together, 1), (alone, 0)))
        for ours, theirs in zip(*pairs, strict=True):
            assert (ours - theirs).norm() <= 1e-4 * theirs.norm(), name


def test_a_frozen_agent_keeps_its_statistics() -> None:
    made = learner()
    acting = Acting(made)
    acting.act(OBS[0])
    before = made.obs_rms.mean.clone()
    made.state()["active"][1] = False
    acting.act(OBS[1])
    assert torch.equal(made.obs_rms.mean[1], before[1]) and not torch.equal(
        made.obs_rms.mean[0], before[0]
    )


@pytest.mark.parametrize("queues", [False, True])
def test_learning_while_environments_step_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queues: bool
) -> None:
    made = small.settings(
        method="grad-caps", norm_obs=True, steps=200, buffer_size=100, checkpoint_every=70
    )
    ahead, after = (Trainer(made, tmp_path / name) for name in ("a", "b"))
    monkeypatch.setattr(ahead, "_queues_updates", queues)
    monkeypatch.setattr(after, "update_ahead", lambda: None)
    for trainer in (ahead, after):
        trainer.train()
    same_bits(ahead, after)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    made = small.settings(norm_obs=True, steps=150, checkpoint_every=40)
    whole = Trainer(made, tmp_path / "whole")
    whole.train()
    killed_run.interrupt(made, tmp_path / "run", 100)
    unfinished = damper.Run(tmp_path / "run").policy(0)
    assert unfinished.info.steps == 80 and unfinished.normaliser is not None
    resumed = Trainer(made, tmp_path / "run")
    resumed.train()
    assert killed_run.sums(resumed) == killed_run.sums(whole)
    policies = [
        path.read_bytes()
        for name in ("run", "whole")
        for path in sorted((tmp_path / name).glob("policies/*"))
    ]
    assert policies[:2] == policies[2:]


def test_compiled_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    eager, traced = (
        learner(dtype="float64", graph=False, compile=compiled) for compiled in (False, True)
    )
    for made in (eager, traced):
        acting = Acting(made)
        for obs in OBS[:8]:
            acting.act(obs)
            made.update()
    for name, tensor in traced.state().items():
        torch.testing.assert_close(tensor, eager.state()[name], rtol=1e-9, atol=1e-12, msg=name)
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, True])
def test_as_cuda_graphs_it_is_the_same(compile: bool) -> None:
    shared = {"method": "grad-caps", "norm_obs": True, "dtype": "float64", "device": "cuda"}
    learners = [
        small.learner(small.settings(**shared, **how), device="cuda")
        for how in ({"graph": False}, {"graph": True, "compile": compile})
    ]
    for made in learners:
        acting = Acting(made)
        for obs in OBS[:20]:
            acting.act(obs)
            made.update()
    for name, tensor in learners[1].state().items():
        torch.testing.assert_close(
            tensor, learners[0].state()[name], rtol=1e-8, atol=1e-11, msg=name
        )


# --- what is kept ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    settings = small.settings("sac", norm_obs=True, steps=120, eval_every=60, eval_episodes=1)
    trainer = Trainer(settings, tmp_path_factory.mktemp("norm") / "run")
    trainer.train()
    return trainer


def test_policies_hold_the_statistics_and_evaluation_uses_them(trained: Trainer) -> None:
    run, made, obs = trained.run, trained.learner, OBS[:, 0]
    policies = run.policies()
    for agent, policy in enumerate(policies):
        expected = made.networks.actor()(made.normalise(torch.tensor(np.stack((obs, obs)))))[agent]
        np.testing.assert_allclose(policy(obs), 2 * expected.detach().numpy(), atol=2e-6)
        assert policy.info.normaliser == made.obs_rms.normalisers()[agent].to_dict()
    drawn, _ = policies[0].predict(obs, deterministic=False)
    assert np.abs(drawn - policies[0](obs)).max() > 0.01
    found = damper.evaluate(run, episodes=2)
    for agent, policy in enumerate(policies):
        alone = damper.evaluate(policy, episodes=2)
        assert [e.total for e in found.episodes[agent]] == pytest.approx(
            [e.total for e in alone.episodes[0]]
        )
    assert run.policy(0, best=True).normaliser is not None and run.evaluations()


def test_a_file_without_statistics_has_no_normaliser(trained: Trainer, tmp_path: Path) -> None:
    policy = trained.run.policy(0)
    Policy(replace(policy.info, normaliser=None), policy.flat_params).save(
        tmp_path / "plain.safetensors"
    )
    assert Policy.load(tmp_path / "plain.safetensors").normaliser is None


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_exported_files_normalise_inside(trained: Trainer, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("onnxruntime")
    contract = export(trained.run, tmp_path / f"policy.{ending}", agent=1, episodes=0)
    assert contract["observation"]["normalisation"] == "inside"
    assert contract["check"]["largest_difference"] < 1e-5
    exported = open_policy(tmp_path / f"policy.{ending}", trust=True)
    np.testing.assert_allclose(exported.act(OBS[:, 0]), trained.run.policy(1)(OBS[:, 0]), atol=2e-5)


def test_statistics_are_not_given_twice(trained: Trainer, tmp_path: Path) -> None:
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    with pytest.raises(DamperError, match=r"vecnormalize must be left out here: .* other policies"):
        export(trained.run, tmp_path / "policy.onnx", vecnormalize=env)


def test_an_sb3_model_s_statistics_go_into_a_policy_file_and_not_back(tmp_path: Path) -> None:
    from damper.sb3 import TD3, from_sb3, to_sb3

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    kwargs = {"net_arch": [8], "activation_fn": torch.nn.SiLU}
    model = TD3("MlpPolicy", env, learning_starts=20, buffer_size=100, policy_kwargs=kwargs).learn(
        40
    )
    policy = from_sb3(model)
    policy.save(tmp_path / "policy.safetensors")
    raw = OBS[:, 0]
    expected = model.predict(env.normalize_obs(raw), deterministic=True)[0]
    np.testing.assert_allclose(
        Policy.load(tmp_path / "policy.safetensors")(raw), expected, atol=1e-5
    )
    assert isinstance(policy.normaliser, Normaliser)
    with pytest.raises(DamperError, match="must not normalise observations itself"):
        to_sb3(policy, model)


def test_it_is_another_run_and_off_it_is_what_it_was() -> None:
    on, off = (small.settings(norm_obs=value) for value in (True, False))
    assert default_folder(on) != default_folder(off) == default_folder(small.settings())
    ours, usual = (identity(made.record(), {"seed": 0}, {}, 10) for made in (on, off))
    assert digest(ours) != digest(usual) and "norm_obs" not in usual["training"]
    assert deviations(ours)["norm_obs"] is True and "norm_obs" not in deviations(usual)
