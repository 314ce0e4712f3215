"""Check that a population fits into memory before anything is allocated."""

from __future__ import annotations

from pathlib import Path

import torch

from damper.agents import BACKBONES
from damper.engine.data.replay import Replay
from damper.engine.networks.agent_networks import NetworkSizes, layouts
from damper.engine.settings import Settings
from damper.errors import DamperError
from damper.methods import find_method

# Upper bound of a learner's peak GPU memory over parameters, targets and moments.
# `python -m paper bench scaling` measures the peak of two learners together
# (docs/bench/h200/scaling-35.json): 790 MiB with TD3, 507 with SAC; each state has 203 and 103,
# each replay 7.5. If one held nothing else, the other held 2.8 and 3.8 times its state.
PEAK_FACTOR = 3.9


def check_memory(settings: Settings, obs_dim: int, act_dim: int) -> None:
    """Raise for a population that does not fit, before anything is trained."""
    device = torch.device(settings.device)
    peak = PEAK_FACTOR if device.type == "cuda" else 1.0
    needed, available = needed_memory(settings, obs_dim, act_dim, peak), memory_available(device)
    if available is not None and needed > 0.95 * available:
        raise DamperError(
            f"buffer_size={settings.buffer_size} with {len(settings.agents())} agents needs about "
            f"{needed / 2**30:.1f} GiB on {settings.device}, but {available / 2**30:.1f} GiB are "
            "free: lower buffer_size, or train fewer agents."
        )


def needed_memory(settings: Settings, obs_dim: int, act_dim: int, peak: float = 1.0) -> int:
    """Bytes of the replay that the run can fill, plus ``peak`` times parameters and moments."""
    method = find_method(settings.method)
    sizes = NetworkSizes(obs_dim, act_dim, settings.net_arch, settings.activation)
    actor, critic = layouts(settings.backbone, method, sizes)
    copies = 3 + BACKBONES[settings.backbone].HAS_ACTOR_TARGET + method.prediction
    replay: int = min(settings.buffer_size, settings.steps) * Replay.width(obs_dim, act_dim)
    numbers = replay + peak * (copies * actor.size + 4 * 2 * critic.size)
    size: int = getattr(torch, settings.dtype).itemsize
    return int(size * numbers * len(settings.agents()))


def memory_available(device: torch.device) -> int | None:
    """Bytes that can still be allocated on the device, or None if the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    bounds = []
    info, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    if info.exists():
        rows = (line.split() for line in info.read_text().splitlines())
        bounds += [int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"]
    if limit.exists() and limit.read_text().strip().isdigit():
        bounds.append(int(limit.read_text()))  # a container may have less than the machine
    return min(bounds, default=None)
