"""Checks of a rule's arguments: the two gradients, and values that may differ per agent."""

from __future__ import annotations

import torch
from torch import Tensor

from damper._checks import Setting, check_range
from damper.errors import DamperError


def check_pair(primary: Tensor, auxiliary: Tensor) -> None:
    """Raise unless both are dense floating-point tensors of one shape, dtype and device."""
    for name, gradient in (("primary", primary), ("auxiliary", auxiliary)):
        if not isinstance(gradient, Tensor):
            raise DamperError(
                f"{name} must be a tensor, not {type(gradient).__name__}: wrap it in "
                "torch.as_tensor."
            )
        if not gradient.is_floating_point():
            raise DamperError(
                f"{name} must have a floating-point dtype, but has {gradient.dtype}: cast it first."
            )
        if gradient.layout is not torch.strided:
            raise DamperError(
                f"{name} must be dense, but its layout is {gradient.layout}: use to_dense() first."
            )
        if gradient.ndim == 0 or gradient.shape[-1] == 0:
            raise DamperError(
                f"{name} must have shape [..., n] with n at least 1, but has "
                f"{tuple(gradient.shape)}: "
                "flatten the gradient over its parameters."
            )
    if primary.shape != auxiliary.shape:
        raise DamperError(
            f"auxiliary must have primary's shape {tuple(primary.shape)}, but has "
            f"{tuple(auxiliary.shape)}: "
            "flatten both gradients over the same parameters."
        )
    if primary.dtype != auxiliary.dtype:
        raise DamperError(
            f"auxiliary must have primary's dtype {primary.dtype}, but has {auxiliary.dtype}: cast "
            "one of them."
        )
    if primary.device != auxiliary.device:
        raise DamperError(
            f"auxiliary must be on primary's device {primary.device}, but is on "
            f"{auxiliary.device}: move one of them."
        )


def broadcastable(
    name: str, value: Setting, like: Tensor, low: float = 0.0, high: float = float("inf")
) -> Setting:
    """``fitted``, for a setting within bounds."""
    check_range(name, value, low, high)
    return fitted(name, value, like) if isinstance(value, Tensor) else value


def fitted(name: str, value: Setting, like: Tensor) -> Setting:
    """A float as it is; a tensor on the device and in the dtype of ``like``, ``[...]``."""
    if not isinstance(value, Tensor):
        return value
    try:
        fits = torch.broadcast_shapes(value.shape, like.shape) == like.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise DamperError(
            f"{name} must broadcast over the leading axes {tuple(like.shape)}, but has shape "
            f"{tuple(value.shape)}: "
            "give one value per agent."
        )
    # Without non_blocking a setting left on the CPU would make every call wait for the device.
    return value.to(like, non_blocking=not like.is_cpu)
