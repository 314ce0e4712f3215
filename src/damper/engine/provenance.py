"""Where a result came from: versions of every library and physics engine, hardware, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

_PACKAGES = ("damper", "torch", "numpy", "gymnasium", "mujoco", "box2d", "envpool", "stable-baselines3", "safetensors")


def versions() -> dict[str, str]:
    """Installed versions of what can move a result."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, "torch": torch.__version__}


def hardware(device: str) -> dict[str, str | int]:
    """The machine in words."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = names[0] if names else cpu
    facts: dict[str, str | int] = {"cpu": cpu, "cores": os.cpu_count() or 1, "threads": torch.get_num_threads()}
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def commit() -> str | None:
    """The source tree's commit, marked if it was changed; None outside a checkout.

    A copy without its history can be told its commit in the environment variable ``DAMPER_COMMIT``.
    """
    if told := os.environ.get("DAMPER_COMMIT"):
        return told
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        changes = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def memory_available(device: torch.device) -> int | None:
    """Bytes that can still be allocated there, where the system tells."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    bounds = []
    info, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    if info.exists():
        lines = (line.split() for line in info.read_text().splitlines())
        bounds += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    if limit.exists() and limit.read_text().strip().isdigit():
        bounds.append(int(limit.read_text()))  # a container may have less than the machine
    return min(bounds, default=None)
