"""The recipes of docs/loops.md run on batches from the buffers of the libraries that they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

import damper

PAGE = Path(__file__).parents[1] / "docs" / "loops.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SIZE = 64


class Sample(NamedTuple):
    """A batch, its flags in the library's own dtype."""

    obs: Tensor
    next_obs: Tensor
    done: Tensor


def sample_of_cleanrl() -> Sample:
    """CleanRL's SAC and TD3 sample from Stable-Baselines3's buffer."""
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    observations = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    actions = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    buffer = buffers.ReplayBuffer(SIZE, observations, actions, "cpu", n_envs=1)
    rng = np.random.default_rng(0)
    for step in range(SIZE):
        obs = rng.standard_normal((2, 1, 3))
        buffer.add(obs[0], obs[1], np.zeros((1, 1)), np.ones(1), np.array([step % 4 == 0]), [{}])
    data = buffer.sample(SIZE)
    assert data.dones.dtype == torch.float32
    return Sample(data.observations, data.next_observations, data.dones)


def sample_of_skrl() -> Sample:
    """The tensors that skrl's DDPG, TD3 and SAC sample."""
    memories = pytest.importorskip("skrl.memories.torch", reason="skrl is not installed")
    memory = memories.RandomMemory(memory_size=SIZE, num_envs=1, device="cpu")
    names = ("states", "next_states", "terminated")
    for name in names[:2]:
        memory.create_tensor(name, size=3)
    memory.create_tensor("terminated", size=1, dtype=torch.bool)
    for step in range(SIZE):
        states, next_states = torch.randn(2, 1, 3)
        terminated = torch.tensor([[step % 4 == 0]])
        memory.add_samples(states=states, next_states=next_states, terminated=terminated)
    return Sample(*memory.sample(list(names), batch_size=SIZE)[0])


def sample_of_torchrl() -> Sample:
    """Transitions as TorchRL's collectors store them."""
    data = pytest.importorskip("torchrl.data", reason="torchrl is not installed")
    from tensordict import TensorDict

    terminated = (torch.arange(SIZE) % 4 == 0)[:, None]
    following = {"observation": torch.randn(SIZE, 3), "terminated": terminated}
    rows = TensorDict({"observation": torch.randn(SIZE, 3), "next": following}, [SIZE])
    buffer = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(SIZE), batch_size=SIZE)
    buffer.extend(rows)
    batch = buffer.sample()
    following = batch["next"]
    return Sample(batch["observation"], following["observation"], following["terminated"])


def section(title: str, level: str = "## ") -> str:
    """The page's code below a heading."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(f"{level}{title}")
    end = text.find("\n## ", start)
    return "".join(BLOCK.findall(text[start:end]))


SECTIONS = [
    (["SAC, as in CleanRL"], sample_of_cleanrl),
    (["An agent class, as in skrl"], sample_of_skrl),
    (["An agent class, as in skrl", "A loss module, as in TorchRL"], sample_of_torchrl),
]


@pytest.mark.parametrize(("titles", "sample"), SECTIONS, ids=["cleanrl", "skrl", "torchrl"])
def test_recipes_take_the_library_s_batch(
    titles: list[str], sample: Callable[[], Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    exec(section("Recipes for your own loop", "# "), names)
    names |= sample()._asdict()
    names["done"] = names["done"].expand(SIZE, 1)
    padding = 256 // SIZE  # the page's batch has 256 rows, which TorchRL's recipe spells out
    names |= {name: torch.cat([names[name]] * padding) for name in Sample._fields}
    kept_masks: list[Tensor] = []
    original = damper.temporal_loss

    def watched(policy: Any, obs: Tensor, next_obs: Tensor, mask: Tensor) -> Tensor:
        kept_masks.append(mask)
        return original(policy, obs, next_obs, mask=mask)

    monkeypatch.setattr(damper, "temporal_loss", watched)
    for title in titles:
        exec(section(title), names)
    assert torch.equal(kept_masks[-1].bool().flatten(), names["done"].flatten() == 0)
    assert not bool(names["report"].guard)
    assert 0.0 < float(names["done"].float().mean()) < 1.0


def test_differences_of_consecutive_actions_are_lost_in_bfloat16() -> None:
    torch.manual_seed(0)
    actor = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.SiLU(), torch.nn.Linear(16, 2))
    obs = torch.randn(4096, 3)
    next_obs = obs + 0.003 * torch.randn(4096, 3)
    exact = damper.temporal_loss(actor.double(), obs.double(), next_obs.double())
    actor.float()
    in_float32 = damper.temporal_loss(actor, obs, next_obs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        in_bfloat16 = damper.temporal_loss(actor, obs, next_obs)
    assert in_float32.item() == pytest.approx(exact.item(), rel=1e-4)
    assert in_bfloat16.item() > 2 * exact.item()  # mostly rounding errors


def test_scaled_losses_give_the_gradients_of_unscaled_ones() -> None:
    torch.manual_seed(0)
    actor, obs = torch.nn.Linear(3, 2), torch.randn(64, 3)
    optimizer = torch.optim.SGD(actor.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    gradients = []
    for scale in (lambda loss: loss, scaler.scale):
        losses = [actor(obs).square().mean(), damper.temporal_loss(actor, obs, obs + 0.1)]
        damper.backward(*map(scale, losses), actor.parameters(), eta=0.5)
        if gradients:
            scaler.unscale_(optimizer)
        gradients.append(torch.cat([p.grad.flatten() for p in actor.parameters()]))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_compiled_losses_train_as_eager_ones() -> None:
    from tests.test_examples import load

    main = load("fast_td3_style").main
    eager, compiled = main(20), main(20, compile=True)
    assert compiled["mean_change"] == pytest.approx(eager["mean_change"], rel=0.05)


def test_smoothing_shows_in_a_loop_with_many_environments() -> None:
    from tests.test_examples import load

    main = load("fast_td3_style").main
    least, most = (main(120, eta=eta)["mean_change"] for eta in (0.0, 1.0))
    assert most < 0.5 * least
