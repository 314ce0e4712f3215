"""How many cores there are to use; without torch, which a command that only looks at an environment never loads."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # a container's processor time per period, "max" without a limit


def usable_cores() -> int:
    """How many cores this process may use, where the machine may have more for others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):
        return cores
