"""What every test shares: GPU tests skip elsewhere, one CPU thread, no clock in property tests."""

from __future__ import annotations

import signal

import hypothesis
import pytest
import torch

from damper.engine.settings import devices

# A loaded machine is no counterexample, and a failing run must fail again when repeated.
hypothesis.settings.register_profile("damper", deadline=None, derandomize=True)
hypothesis.settings.load_profile("damper")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Processes that share the tests must give them the same names.
    assert not (names := [item.nodeid for item in items if " at 0x" in item.nodeid]), names
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(
        reason="needs a CUDA device, and torch.cuda.is_available() is False here"
    )
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    # Started in the background, a process ignores SIGINT and so do its children; tests of Ctrl-C
    # send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where there is a GPU too: tests that need it ask for it.
    monkeypatch.setattr(devices, "_fastest_device", lambda: "cpu")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    # Sums over several threads depend on their number, so bit-for-bit comparisons fix it.
    torch.set_num_threads(1)
