"""Acting: what was asked last is what is answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from damper.engine.loop.acting import Acting
from damper.interface import Noise, NoiseDraws
from tests.engine import small

OBS = np.linspace(-2.0, 2.0, 15).reshape(5, 3).astype(np.float32)


def test_acting_again_before_the_actions_were_taken_gives_the_new_ones() -> None:
    learner, other = (
        small.learner(small.settings("td3", "plain", seeds=range(5))) for _ in range(2)
    )
    acting, once = Acting(learner), Acting(other)
    acting.start(OBS)
    acting.start(OBS * 2)
    once.act(OBS)
    for ours, theirs in zip(acting.actions(), once.act(OBS * 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert torch.equal(learner.acted, other.acted)


def test_a_backbone_draws_what_it_asked_for_to_explore() -> None:
    learner = small.learner(small.settings("td3", "plain", seeds=range(5)))
    td3, seen = learner.backbone, {}

    def explore(actor: Any, obs: Tensor, noise: NoiseDraws, hparams: Any) -> Tensor:
        seen.update(noise)
        return td3.explore(actor, obs, noise, hparams)

    kinds = {
        "exploration": Noise("normal", "action"),
        "where": Noise("uniform", "obs"),
        "sign": Noise("rademacher", None),
    }
    learner.backbone = SimpleNamespace(
        EXPLORATION_NOISE=kinds, explore=explore, perturb=td3.perturb
    )
    Acting(learner).act(OBS)
    assert {name: tuple(draw.shape) for name, draw in seen.items()} == {
        "exploration": (5, 1, 1), "where": (5, 1, 3), "sign": (5, 1),
    }  # fmt: skip
    assert torch.equal(seen["exploration"], learner.streams.normal("exploration", 0, (1, 1)))
