"""The devices that the engine can train on."""

from __future__ import annotations

import torch

from damper.errors import DamperError


def find_device(device: str | int | torch.device = "auto") -> str:
    """The name of a device of this machine; "auto" is a GPU if there is one, else the CPU."""
    name = _fastest_device() if device == "auto" else device_name(device)
    count = torch.cuda.device_count()
    if name != "cpu" and (torch.device(name).index or 0) >= count:
        raise DamperError(
            f"device must be one that this machine has, but {str(device)!r} was given and {count} "
            "CUDA devices were found: use device='cpu'."
        )
    return name


def device_name(device: str | int | torch.device) -> str:
    """The device's name; raises unless it is a CPU or a CUDA device."""
    try:
        kind = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise DamperError(f"device must be 'cpu' or 'cuda', but {device!r} was given.") from error
    if kind.type not in ("cpu", "cuda"):
        raise DamperError(
            f"device must be 'cpu' or 'cuda', but {str(device)!r} was given: use device='cpu'."
        )
    return "cpu" if kind.type == "cpu" else str(kind)


def _fastest_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
