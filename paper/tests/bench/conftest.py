from __future__ import annotations

from itertools import count

import pytest

from paper.bench.interleaved_timing import CLOCKS


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clocks go on by one second whenever they are read."""
    for name in CLOCKS:
        monkeypatch.setitem(CLOCKS, name, map(float, count()).__next__)
