"""What makes our updates SB3's bit for bit, where a test compares them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is faster up to rounding: fused steps, and PPO's one forward pass."""
    pytest.importorskip("stable_baselines3")
    from damper.sb3 import ppo
    from damper.sb3.common import off_policy

    def unfused(_: Any) -> Any:
        return nullcontext()

    monkeypatch.setattr(off_policy, "fused", unfused)
    monkeypatch.setattr(ppo, "fused", unfused)
    monkeypatch.setattr(ppo, "evaluates_jointly", lambda policy: False)
