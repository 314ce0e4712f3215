"""Arrays between host and device keep their numbers, whenever they are read or written over."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from damper.engine.device import transfers
from damper.engine.device.transfers import Download, Upload, sleep_while_waiting


def test_what_is_sent_arrives_and_may_be_written_over() -> None:
    device = torch.device("cpu")
    upload, target = Upload((2, 3), device, torch.float32), torch.zeros(4, 2, 3)
    for step in range(4):
        upload.host_buffer()[...] = np.full((2, 3), step + 1, np.float64)
        upload.send(target[step])
        upload.record_event()
    assert target[:, 0, 0].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_what_was_fetched_stays() -> None:
    download, source = (
        Download((2,), torch.device("cpu"), torch.float64),
        torch.ones(2, dtype=torch.float64),
    )
    download.start(source)
    download.record_event()
    first = download.wait()
    source.zero_()
    assert download.wait().tolist() == [1.0, 1.0], "as it was when the copy began"
    download.start(source)
    download.record_event()
    assert download.wait().tolist() == [0.0, 0.0] and first.tolist() == [1.0, 1.0], (
        "an array of its own"
    )


@pytest.mark.gpu
def test_a_busy_device_neither_holds_up_the_host_nor_gets_the_wrong_numbers() -> None:
    device = torch.device("cuda")
    upload, download = Upload((64,), device, torch.float32), Download((64,), device, torch.float32)
    targets, work = torch.zeros(50, 64, device=device), torch.randn(4096, 4096, device=device)
    torch.cuda.synchronize()
    with torch.cuda.device(device):
        busy = torch.cuda.Event()
        for _ in range(20):
            work = work @ work
        busy.record()
        upload.host_buffer()[...] = 0.0
        upload.send(targets[0])
        upload.record_event()
        assert not busy.query(), "the host is ahead of the device"
        download.start(targets[0])
        download.record_event()
        for step in range(1, 50):
            upload.host_buffer()[...] = step
            upload.send(targets[step])
            upload.record_event()
        for _ in range(20):
            work = work @ work
    assert download.wait().tolist() == [0.0] * 64
    assert torch.equal(targets.cpu(), torch.arange(50.0).unsqueeze(1).expand(-1, 64))


@pytest.mark.gpu
def test_a_host_that_shares_its_cores_sleeps_while_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfers, "_blocking_events", False)
    device = torch.device("cuda")
    work = torch.randn(8192, 8192, device=device)

    def processor_share() -> float:
        """Of the time that the host waits for some tenths of a second."""
        download = Download((1,), device, torch.float32)
        for _ in range(20):
            work @ work
        download.start(work[0, :1])
        download.record_event()
        wall, processor = time.perf_counter(), time.thread_time()
        download.wait()
        return (time.thread_time() - processor) / (time.perf_counter() - wall)

    processor_share()
    spinning = processor_share()
    sleep_while_waiting()
    assert processor_share() < 0.4 * spinning  # not each by itself: others may use the cores
