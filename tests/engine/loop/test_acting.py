"""Acting: what was asked last is what is answered."""

from __future__ import annotations

import numpy as np
import torch

from damper.engine.loop.acting import Acting
from tests.engine import small

OBS = np.linspace(-2.0, 2.0, 15).reshape(5, 3).astype(np.float32)


def test_acting_again_before_the_actions_were_taken_gives_the_new_ones() -> None:
    learner, other = (small.learner(small.settings("td3", "plain", seeds=range(5))) for _ in range(2))
    acting, once = Acting(learner), Acting(other)
    acting.start(OBS)
    acting.start(OBS * 2)
    once.act(OBS)
    for ours, theirs in zip(acting.actions(), once.act(OBS * 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert torch.equal(learner.acted, other.acted)
