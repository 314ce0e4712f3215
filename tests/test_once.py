"""Numbers written down before they are used stay what they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from damper.once import once

NUMBERS = (torch.tensor([True, False]), torch.tensor([0.1, 3e38]), torch.tensor([0.1, -1e300], dtype=torch.float64))


def numbers(*given: Tensor) -> list[Tensor]:
    return once(*given)


def test_eager_they_are_handed_back() -> None:
    assert all(ours is theirs for ours, theirs in zip(once(*NUMBERS), NUMBERS, strict=True))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled_they_keep_value_and_dtype(backend: str) -> None:
    for ours, theirs in zip(torch.compile(numbers, backend=backend)(*NUMBERS), NUMBERS, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
