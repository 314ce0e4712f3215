"""Some agents act as they do among all, with the policies that were shown last."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from damper.engine.loop.acting import Acting
from tests.engine import small

OBS = np.linspace(-2.0, 2.0, 15).reshape(5, 3).astype(np.float32)


@pytest.mark.parametrize("backbone", ["td3", "sac"])
@pytest.mark.parametrize(
    ("device", "graph"),
    [("cpu", None), *(pytest.param("cuda", graph, marks=pytest.mark.gpu) for graph in (False, True))],
)
def test_parts_act_as_the_whole_does(backbone: str, device: str, graph: bool | None) -> None:
    # Agents differ in seed and noise, and act at random at first.
    own = {"seeds": range(5), "learning_starts": 3, "overlap": True, "device": device, "graph": graph}
    whole, parted = (small.learner(small.settings(backbone, "plain", **own), device=device) for _ in range(2))
    places = slice(0, 3), slice(3, 5)
    parts = [Acting(parted, place) for place in places]
    every = Acting(whole)
    for step in range(6):
        expected = every.act(OBS * step)
        for part, place in zip(parts, places, strict=True):
            part.start(OBS[place] * step)
        for part, place in zip(parts, places, strict=True):
            for ours, theirs in zip(part.actions(), expected, strict=True):
                np.testing.assert_allclose(ours, theirs[place], rtol=0, atol=1e-6)
        for learner in (whole, parted):
            learner.learn()
            learner.sync_behaviour()
    assert whole.acted.tolist() == parted.acted.tolist() == [6] * 5


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_with_overlap_what_is_learned_is_unseen_until_it_is_shown(device: str) -> None:
    own = {"seeds": range(5), "learning_starts": 0, "policy_delay": 1, "device": device}
    hidden = small.learner(small.settings("td3", "plain", overlap=True, **own), device=device)
    at_once = small.learner(small.settings("td3", "plain", **own), device=device)
    by_hidden, by_at_once = Acting(hidden), Acting(at_once)
    before = by_hidden.act(OBS)[2]
    np.testing.assert_array_equal(before, by_at_once.act(OBS)[2])
    for learner in (hidden, at_once):
        learner.learn()
    np.testing.assert_array_equal(by_hidden.act(OBS)[2], before)
    after = by_at_once.act(OBS)[2]
    assert (after != before).any()
    hidden.sync_behaviour()
    hidden.learn()
    np.testing.assert_allclose(by_hidden.act(OBS)[2], after, rtol=0, atol=1e-6)
    assert "shown" in hidden.state() and "shown" not in at_once.state()


def test_acting_again_before_the_actions_were_taken_gives_the_new_ones() -> None:
    learner, other = (small.learner(small.settings("td3", "plain", seeds=range(5))) for _ in range(2))
    acting, once = Acting(learner), Acting(other)
    acting.start(OBS)
    acting.start(OBS * 2)
    once.act(OBS)
    for ours, theirs in zip(acting.actions(), once.act(OBS * 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert torch.equal(learner.acted, other.acted)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [False, True])
def test_streams_wait_for_each_other_where_they_must(graph: bool) -> None:
    own = {"seeds": range(5), "learning_starts": 0, "policy_delay": 1, "device": "cuda", "graph": graph}
    learner = small.learner(small.settings("td3", "plain", overlap=True, **own), device="cuda")
    acting = Acting(learner)
    learner.learn()
    learner.sync_behaviour()
    before = acting.act(OBS)[2]
    learner.learn()
    with torch.cuda.stream(learner.act_stream):
        torch.cuda._sleep(10**8)
    acting.start(OBS)
    learner.sync_behaviour()  # must not reach the policies before they have acted
    np.testing.assert_array_equal(acting.actions()[2], before)
    after = acting.act(OBS)[2]
    assert (after != before).any()
    torch.cuda._sleep(10**8)
    learner.learn()
    learner.sync_behaviour()
    assert (acting.act(OBS)[2] != after).any(), "acting waits for what was shown"


@pytest.mark.gpu
def test_acting_does_not_wait_for_an_update_under_way() -> None:
    own = {"seeds": range(5), "learning_starts": 0, "device": "cuda"}
    learner = small.learner(small.settings("td3", "plain", overlap=True, **own), device="cuda")
    acting = Acting(learner)
    for _ in range(3):  # everything is recorded
        acting.act(OBS)
        learner.sync_behaviour()
        learner.learn()
        learner.learn()
    torch.cuda.synchronize()
    learner.sync_behaviour()
    under_way = torch.cuda.Event()
    torch.cuda._sleep(10**9)
    learner.learn()
    under_way.record()
    acting.act(OBS)
    assert not under_way.query()
