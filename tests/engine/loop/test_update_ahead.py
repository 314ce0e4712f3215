"""Updates without the newest step run while the environments step, and change nothing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from damper.engine.loop.trainer import Trainer
from damper.engine.update.learner import Learner
from tests.engine import small


def trained(
    out: Path, ahead: bool, monkeypatch: pytest.MonkeyPatch, queues: bool = False, **own: Any
) -> tuple[Trainer, list[str]]:
    trainer = Trainer(small.settings("td3", "grad-caps", steps=400, buffer_size=150, **own), out)
    monkeypatch.setattr(trainer, "_queues_updates", queues)
    order: list[str] = []
    if not ahead:
        monkeypatch.setattr(trainer, "update_ahead", lambda: None)
    pool, learner = trainer.pool, trainer.learner
    for part, name in (
        (trainer.acting, "start"),
        (pool, "send"),
        (pool, "receive"),
        (learner, "update"),
    ):
        call = getattr(part, name)
        monkeypatch.setattr(
            part, name, lambda *a, name=name, call=call: (order.append(name), call(*a))[1]
        )
    trainer.train()
    return trainer, order


@pytest.mark.parametrize("queues", [False, True], ids=["after sending", "before, as on a GPU"])
@pytest.mark.parametrize("own", [{}, {"gradient_steps": 2, "checkpoint_every": 70}])
def test_learning_ahead_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], queues: bool
) -> None:
    (ours, order), (theirs, usual) = (
        trained(tmp_path / str(a), a, monkeypatch, queues, **own) for a in (True, False)
    )
    for name, tensor in ours.learner.state().items():
        torch.testing.assert_close(
            tensor, theirs.learner.state()[name], rtol=0, atol=0, equal_nan=True, msg=name
        )
    assert torch.equal(ours.learner.replay.rows, theirs.learner.replay.rows)
    assert [line | {"seconds": 0, "steps_per_second": 0} for line in ours.run.metrics()] == [
        line | {"seconds": 0, "steps_per_second": 0} for line in theirs.run.metrics()
    ]
    # Both happen: batches of 16 from up to 150 steps often hold the newest one of some agent, and
    # often do not.
    pairs, ahead = list(itertools.pairwise(order)), ("start" if queues else "send", "update")
    assert pairs.count(ahead) > 20 and pairs.count(("receive", "update")) > 20
    assert ahead not in set(itertools.pairwise(usual))


def test_the_host_draws_what_the_device_will(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small.learner(small.settings(seeds=(3, 5), batch_size=4, buffer_size=50), rows=60)
    drawn: list[torch.Tensor] = []
    gather = learner.replay.gather
    monkeypatch.setattr(
        learner.replay, "gather", lambda index, *a: (drawn.append(index), gather(index, *a))[1]
    )
    said = []
    for _ in range(40):
        said.append(learner.newest_sampled(60, learner.updates))
        Learner.update(learner)
    assert said == [bool((index == 59 % 50).any()) for index in drawn] and {*said} == {True, False}
