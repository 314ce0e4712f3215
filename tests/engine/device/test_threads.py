"""Small products stay on one thread, large ones keep torch's number."""

from __future__ import annotations

import pytest
import torch

from damper.engine.device.threads import fitting_threads, torch_threads


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_threads_are_put_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(LookupError), torch_threads(before + 1):
        raise LookupError
    assert torch.get_num_threads() == before


def test_the_demo_s_networks_use_one_thread_and_the_paper_s_all() -> None:
    with torch_threads(3):
        assert fitting_threads(3 * 128, (128, 128)) == 1
        assert fitting_threads(256, (400, 300)) == 3  # 2 · 256 · 400 · 300 = 6e7 operations
        assert fitting_threads(0, (400, 300)) == 1  # nothing is computed here: the device does it
        assert fitting_threads(5 * 256, (256,)) == 1
