"""The number of usable cores; without torch, which not every command loads."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # a container's CPU time per period, "max" without a limit


def usable_cores() -> int:
    """The number of cores that this process may use, which may be fewer than the machine has."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores
