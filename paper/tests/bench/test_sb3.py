"""The overhead is measured side by side."""

from __future__ import annotations

import pytest

pytest.importorskip("stable_baselines3")
from damper.errors import DamperError
from paper.bench.sb3 import Overhead, measure_overhead

pytestmark = pytest.mark.serial
TINY = {"rounds": 3, "updates": 2, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("backbone", ["td3", "sac", "ddpg", "tqc", "ppo"])
def test_both_classes_are_timed(backbone):
    two_updates_a_second = Overhead(plain_ms=500.0, ours_ms=500.0, ratio=1.0)
    assert measure_overhead(backbone, **TINY) == two_updates_a_second


def test_an_unknown_backbone_is_refused():
    with pytest.raises(
        DamperError, match="backbone must be one of td3, sac, ddpg, tqc, ppo, but 'a2c' was given"
    ):
        measure_overhead("a2c")
