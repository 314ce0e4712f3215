"""What runs beside something else is there when it is waited for."""

from __future__ import annotations

import pytest
import torch

from damper.engine.device.cuda_graph import Graphed
from damper.engine.device.side_stream import SideStream


def together(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """A long and a short computation beside each other, and their inputs' sum."""
    side = SideStream(device)
    x = torch.full((1500, 1500), 1e-3, device=device)

    def both() -> torch.Tensor:
        with side.begin():
            long = x
            for _ in range(4):
                long = long @ x
        short = x + 1.0
        side.join()
        return long + short

    return both(), Graphed(both, dict)() if device.type == "cuda" else both()


def test_in_order_where_there_are_no_streams() -> None:
    first, second = together(torch.device("cpu"))
    assert torch.equal(first, second) and first[0, 0].item() == pytest.approx(1.001 + 1e-3 * 1.5**4)


@pytest.mark.gpu
def test_beside_each_other_on_a_gpu_and_in_a_recording() -> None:
    expected, _ = together(torch.device("cpu"))
    for found in together(torch.device("cuda")):
        torch.testing.assert_close(found.cpu(), expected)
