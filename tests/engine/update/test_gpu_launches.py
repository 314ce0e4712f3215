"""How many layer kernels an update launches on a GPU, counted without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from damper.engine.fused import triton_layers
from damper.engine.update.learner import Learner
from tests.engine import small

# TD3 without and with the actors, then SAC. Losses that read outputs only share the passes of the
# backbone's own, and ASAP runs its average actor as well and has a head of its own. PAVE's, which
# reads derivatives, launches none: it is differentiated by torch.func through PyTorch's products.
SHARED = ([8, 16], [16, 16])
LAUNCHES = {
    **dict.fromkeys(
        ("plain", "damper", "scalarization", "caps", "grad-caps", "l2c2", "pave"), SHARED
    ),
    "asap": ([9, 22], [22, 22]),
}


class CountedKernel:
    """Stands for a kernel; a launch is counted and writes nothing."""

    launches = 0

    def __getitem__(self, grid: tuple[int, int]) -> CountedKernel:
        return self

    def __call__(self, *tensors: torch.Tensor, **constants: Any) -> None:
        self.launches += 1


@pytest.mark.parametrize("method", LAUNCHES)
def test_losses_on_outputs_cost_no_pass_of_their_own(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "compiled", lambda learner, function: function)
    counted: list[list[int]] = []
    for backbone in ("td3", "sac"):
        learner = small.learner(small.settings(backbone, method, net_arch=(64, 32), compile=True))
        kernel = CountedKernel()
        launches = []
        with monkeypatch.context() as on_gpu:
            on_gpu.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
            for name in ("forward_kernel", "backward_kernel"):
                on_gpu.setattr(triton_layers, name, kernel)
            for _ in range(2):
                kernel.launches = 0
                learner.update()
                launches.append(kernel.launches)
        counted.append(launches)
    assert tuple(counted) == LAUNCHES[method]
