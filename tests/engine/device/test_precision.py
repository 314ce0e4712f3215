"""TF32 is on where it was asked for, and as it was before afterwards."""

from __future__ import annotations

import pytest
import torch

from damper.engine.device.precision import check_tf32, device_context
from damper.errors import DamperError


@pytest.mark.parametrize("before", [False, True])
def test_tf32_is_set_and_put_back_also_after_an_error(before: bool) -> None:
    matmul = torch.backends.cuda.matmul
    original = matmul.allow_tf32
    matmul.allow_tf32 = before
    try:
        with device_context("cpu", tf32=not before):
            assert matmul.allow_tf32 is not before
        assert matmul.allow_tf32 is before
        with pytest.raises(LookupError), device_context("cpu", tf32=not before):
            raise LookupError
        assert matmul.allow_tf32 is before
    finally:
        matmul.allow_tf32 = original


def test_tf32_on_a_cpu_is_refused() -> None:
    check_tf32("cpu", False)
    check_tf32("cuda:0", True)
    with pytest.raises(DamperError, match="tf32 must be off on a CPU"):
        check_tf32("cpu", True)
