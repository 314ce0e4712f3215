"""Recurrent actors of rsl_rl: pairs within trajectories, the hidden state carried along."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("rsl_rl")
from rsl_rl.runners import OnPolicyRunner

from damper.errors import DamperError
from damper.interface import Loss
from damper.losses.temporal import temporal
from damper.methods import Method
from damper.rsl_rl import PPO
from tests.rsl_rl.pendulums import Pendulums, config, train, weights

SILENT = Method(
    "silent", actor=Loss(lambda *inputs, **k: 0.0 * temporal(*inputs, **k)), rule="damper"
)


def recurrent(rnn_type: str, models: tuple[str, ...], **algorithm: Any) -> dict[str, Any]:
    cfg = config(**algorithm)
    rnn = {"rnn_type": rnn_type, "rnn_hidden_dim": 8, "rnn_num_layers": 1}
    for model in models:
        cfg[model] |= {"class_name": "RNNModel", **rnn}
    return cfg


BOTH = ("actor", "critic")
CASES = [("lstm", BOTH), ("gru", BOTH), ("lstm", ("actor",)), ("gru", ("critic",))]


@pytest.mark.parametrize(("rnn_type", "models"), CASES)
def test_plain_and_silenced_equal_rsl_rl_bit_for_bit(
    rnn_type: str, models: tuple[str, ...]
) -> None:
    stock = train(4, cfg=recurrent(rnn_type, models, class_name="PPO"))
    for method in ("plain", SILENT):
        runner = train(4, cfg=recurrent(rnn_type, models, method=method))
        assert torch.equal(weights(runner), weights(stock))
    smooth = train(4, cfg=recurrent(rnn_type, models, eta=0.5))
    assert weights(smooth).isfinite().all()
    assert not torch.equal(weights(smooth), weights(stock))


@pytest.mark.parametrize(("rnn_type", "models"), CASES)
def test_pairs_are_the_actions_of_a_rollout(
    rnn_type: str, models: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first step, the means must equal those that the rollout's own policy acted on."""
    seen: list[Any] = []

    def watch(policy: Any, batch: Any, noise: Any) -> torch.Tensor:
        steps = (batch.previous_obs, batch.obs, batch.next_obs)
        seen.append([(step["tag"], policy(step).detach()) for step in steps])
        return temporal(policy, batch, noise)

    env, acted = Pendulums(length=7), {}
    act = PPO.act

    def recorded(self: Any, obs: Any) -> Any:
        actions = act(self, obs)
        means = self.transition.distribution_params[0]
        for i, (tag, mean) in enumerate(zip(obs["tag"].tolist(), means, strict=True)):
            acted[(i, *tag)] = float(mean)
        return actions

    monkeypatch.setattr(PPO, "act", recorded)
    # No normaliser: it would see the rollout before the update does.
    cfg = recurrent(
        rnn_type,
        models,
        method=Method("watching", actor=Loss(watch, previous_obs=True), rule="damper"),
        num_learning_epochs=1,
        num_mini_batches=1,
        learning_rate=0.0,
        schedule="fixed",
    )
    for model in BOTH:
        cfg[model]["obs_normalization"] = False
    runner = OnPolicyRunner(env, cfg, device="cpu")
    # Environments differ in the number of their episode, so that a tag tells its environment.
    env.episode += 1000 * torch.arange(env.num_envs)
    runner.learn(3)
    by_tag = {tag: mean for (_, *tag), mean in acted.items() for tag in [tuple(tag)]}
    pairs = 0
    for before, now, after in seen:
        steps = after[0][:, 1] - now[0][:, 1]
        assert (steps == 1).all() and torch.equal(after[0][:, 0], now[0][:, 0])
        first = now[0][:, 1] == 0
        assert torch.equal(before[0][first], now[0][first])
        assert (now[0] - before[0])[~first].eq(torch.tensor([0.0, 1.0])).all()
        for tags, means in (before, now, after):
            expected = torch.tensor([by_tag[tuple(tag)] for tag in tags.tolist()])
            torch.testing.assert_close(means[:, 0], expected, rtol=1e-5, atol=1e-6)
        pairs += len(now[0])
    total = 3 * 16 * env.num_envs
    assert 0.6 * total < pairs < 0.86 * total


def test_methods_that_perturb_observations_are_refused() -> None:
    with pytest.raises(DamperError, match="also depends on those before"):
        train(0, cfg=recurrent("lstm", BOTH, method="caps"))


def test_losses_at_other_observations_are_refused() -> None:
    method = Method(
        "elsewhere",
        actor=Loss(lambda policy, batch, noise: policy(batch.obs.clone()).square().mean()),
        rule="damper",
    )
    with pytest.raises(DamperError, match="evaluates the actor at observations that are not in"):
        train(1, cfg=recurrent("gru", BOTH, method=method))


@pytest.mark.parametrize("method", ["grad-caps", "bloop", "scalarization"])
def test_other_methods_train(method: str) -> None:
    assert weights(train(2, cfg=recurrent("gru", BOTH, method=method))).isfinite().all()


def test_export_is_refused(tmp_path: Any) -> None:
    pytest.importorskip("onnxruntime")
    from damper.export import export

    runner = train(1, cfg=recurrent("lstm", BOTH))
    with pytest.raises(DamperError, match=r"RNNModel.*: use rsl_rl's own export"):
        export(runner, tmp_path / "policy.onnx")
