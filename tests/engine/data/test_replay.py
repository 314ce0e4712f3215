"""The replay against a plain list of what was stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from damper.engine.data import replay as module
from damper.engine.data.random_streams import Streams
from damper.engine.data.replay import Replay
from damper.engine.device.cuda_graph import CAPTURE_WARM_UP_RUNS
from damper.interface import Batch

P, OBS, ACT, CAPACITY = 3, 2, 1, 7


class Step(NamedTuple):
    """One step of all agents, as it was made."""

    obs: Tensor
    action: Tensor
    next_obs: Tensor
    reward: Tensor
    terminated: Tensor
    first: Tensor


def history(steps: int) -> list[Step]:
    """Observations count upwards along episodes, which end at different times, some by falling."""
    generator = torch.Generator().manual_seed(0)
    obs, first, made = torch.arange(P) * 1000.0, torch.ones(P, dtype=torch.bool), []
    for k in range(steps):
        ended = torch.rand(P, generator=generator) < 0.3
        fell = ended & (torch.rand(P, generator=generator) < 0.5)
        current = torch.stack((obs, -obs), -1)
        made.append(
            Step(
                current,
                torch.full((P, ACT), k / 100),
                current + 1,
                torch.arange(P) + 10.0 * k,
                fell,
                first,
            )
        )
        obs, first = torch.where(ended, obs + 50, obs + 1), ended
    return made


def filled(made: list[Step], capacity: int = CAPACITY, device: str = "cpu") -> Replay:
    replay = Replay(capacity, P, OBS, ACT, torch.device(device), torch.float32)
    for step in made:
        replay.add(Replay.pack(*step))
    return replay


def resumed(made: list[Step], capacity: int = CAPACITY, device: str = "cpu") -> Replay:
    """The same, whose next steps are stored by a recording."""
    replay = Replay(capacity, P, OBS, ACT, torch.device(device), torch.float32, graph=True)
    replay.rows.copy_(filled(made, capacity).rows)
    replay.set_stored(len(made))
    return replay


def tried(
    function: Callable[[], None], changed: Callable[[], Mapping[str, Tensor]]
) -> Callable[[], None]:
    """As a graph is captured: the function runs a few times, and what it changed is restored."""
    begun: list[bool] = []

    def call() -> None:
        if not begun:
            before = {name: tensor.clone() for name, tensor in changed().items()}
            for _ in range(CAPTURE_WARM_UP_RUNS):
                function()
            for name, tensor in changed().items():
                tensor.copy_(before[name])
            begun.append(True)
        function()

    return call


@pytest.mark.parametrize("stored", [0, 2, CAPACITY - 1, 2 * CAPACITY + 3])
@pytest.mark.parametrize("capacity", [1, 2, CAPACITY])
def test_making_a_recording_leaves_what_was_stored(
    stored: int, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = history(stored + 4)
    monkeypatch.setattr(module, "Graphed", tried)
    replay = resumed(made[:stored], capacity)
    for count, step in enumerate(made[stored:], stored + 1):
        replay.add(Replay.pack(*step))
        assert torch.equal(replay.rows, filled(made[:count], capacity).rows)
    assert replay.stored == int(replay.stored_on_device) == stored + 4


@pytest.mark.gpu
@pytest.mark.parametrize("stored", [0, 2 * CAPACITY + 3])
def test_a_recording_stores_what_plain_calls_store(stored: int) -> None:
    made = history(stored + 20)
    replay = resumed(made[:stored], device="cuda")
    for count, step in enumerate(made[stored:], stored + 1):
        replay.add(Replay.pack(*step))
        assert torch.equal(replay.rows.cpu(), filled(made[:count]).rows)
    assert replay.stored == int(replay.stored_on_device) == stored + 20


def check_row(batch: Batch, j: int, b: int, made: list[Step], k: int, oldest: int) -> None:
    """Entry b of agent j's batch is step k; its predecessor the step before, if still there."""
    step = made[k]
    for field in ("obs", "action", "next_obs", "reward"):
        assert torch.equal(getattr(batch, field)[j, b], getattr(step, field)[j])
    assert batch.terminated[j, b] == float(step.terminated[j])
    lost = bool(step.first[j]) or k == oldest
    assert batch.previous_obs is not None
    assert torch.equal(batch.previous_obs[j, b], step.obs[j] if lost else made[k - 1].obs[j])
    if not lost:
        assert torch.equal(batch.previous_obs[j, b] + torch.tensor([1.0, -1.0]), step.obs[j]), (
            "one step apart"
        )


@pytest.mark.parametrize("stored", [1, 3, CAPACITY - 1, CAPACITY, CAPACITY + 1, 3 * CAPACITY + 2])
def test_every_entry_is_what_was_stored_and_knows_its_predecessor(stored: int) -> None:
    made = history(stored)
    replay = filled(made)
    oldest = max(0, stored - CAPACITY)
    kept = list(range(oldest, stored))
    index = torch.tensor([[k % CAPACITY for k in kept]] * P)
    batch = replay.gather(index, previous_obs=True)
    for j in range(P):
        for b, k in enumerate(kept):
            check_row(batch, j, b, made, k, oldest)
    assert replay.gather(index).previous_obs is None
    assert replay.stored == stored == int(replay.stored_on_device)


def test_predecessors_never_cross_a_reset() -> None:
    made = history(60)
    replay = filled(made, capacity=40)
    batch = replay.sample(Streams(range(P)), 0, 500, previous_obs=True)
    assert batch.previous_obs is not None
    change = (batch.obs - batch.previous_obs)[..., 0]
    assert set(change.unique().tolist()) == {0.0, 1.0}, "a reset jumps by 50"
    assert (change == 0).sum() > 100 and (change == 1).sum() > 100


def test_agents_get_their_own_rows() -> None:
    replay = filled(history(20))
    index = torch.tensor([[0, 3], [1, 6], [5, 5]])
    batch = replay.gather(index)
    for j in range(P):
        alone = Replay(CAPACITY, 1, OBS, ACT, torch.device("cpu"), torch.float32)
        for step in history(20):
            alone.add(Replay.pack(*(part[j : j + 1] for part in step)))
        for ours, theirs in zip(batch[:5], alone.gather(index[j : j + 1])[:5], strict=True):
            assert torch.equal(ours[j], theirs[0])


@pytest.mark.parametrize("stored", [4, CAPACITY, 2 * CAPACITY + 3])
def test_samples_are_uniform_over_what_is_there(stored: int) -> None:
    made = history(stored)
    replay = filled(made)
    valid = range(max(0, stored - CAPACITY), stored)
    rewards = replay.sample(Streams(range(P)), 0, 20_000).reward
    for j in range(P):
        values, counts = rewards[j].unique(return_counts=True)
        assert values.tolist() == [float(j + 10 * k) for k in valid]
        assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_samples_differ_between_agents_and_counters() -> None:
    replay, streams = filled(history(CAPACITY)), Streams(range(P))
    steps = [
        (replay.sample(streams, counter, 64).reward - torch.arange(P)[:, None])
        for counter in range(3)
    ]
    rows = [row.tolist() for batch in steps for row in batch]
    assert all(rows[i] != rows[j] for i in range(len(rows)) for j in range(i))


def test_rows_are_allocated_once() -> None:
    replay = Replay(CAPACITY, P, OBS, ACT, torch.device("cpu"), torch.float64)
    assert (
        replay.rows.shape == (CAPACITY, P, Replay.width(OBS, ACT))
        and replay.rows.dtype == torch.float64
    )
    where = replay.rows.data_ptr()
    for step in history(2 * CAPACITY):
        replay.add(Replay.pack(*step))
    assert replay.rows.data_ptr() == where


def test_what_is_not_finite_is_named_for_each_agent() -> None:
    replay = Replay(4, 3, 2, 1, torch.device("cpu"), torch.float32)
    for step in range(6):  # the ring is full
        obs, reward = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
        obs[1, 1], reward[2] = (np.inf, np.nan) if step == 5 else (0, 0)
        replay.add(
            Replay.pack(obs, np.zeros((3, 1)), np.zeros((3, 2)), reward, np.zeros(3), np.zeros(3))
        )
    assert [replay.not_finite(agent) for agent in range(3)] == [[], ["observations"], ["rewards"]]
