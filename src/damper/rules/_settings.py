"""Checks of what a caller hands in: the pair of gradients, and settings that may differ per agent."""

from __future__ import annotations

from numbers import Real

import torch
from torch import Tensor

from damper.errors import DamperError

Setting = float | Tensor


def check_pair(primary: Tensor, auxiliary: Tensor) -> None:
    """Refuse what no rule can combine."""
    for name, gradient in (("primary", primary), ("auxiliary", auxiliary)):
        if not isinstance(gradient, Tensor):
            raise DamperError(f"{name} must be a tensor, not {type(gradient).__name__}: wrap it in torch.as_tensor.")
        if not gradient.is_floating_point():
            raise DamperError(f"{name} must have a floating-point dtype, but has {gradient.dtype}: cast it first.")
        if gradient.layout is not torch.strided:
            raise DamperError(f"{name} must be dense, but its layout is {gradient.layout}: use to_dense() first.")
        if gradient.ndim == 0 or gradient.shape[-1] == 0:
            raise DamperError(
                f"{name} must have shape [..., n] with n at least 1, but has {tuple(gradient.shape)}: "
                "flatten the gradient over its parameters."
            )
    if primary.shape != auxiliary.shape:
        raise DamperError(
            f"auxiliary must have primary's shape {tuple(primary.shape)}, but has {tuple(auxiliary.shape)}: "
            "flatten both gradients over the same parameters."
        )
    if primary.dtype != auxiliary.dtype:
        raise DamperError(
            f"auxiliary must have primary's dtype {primary.dtype}, but has {auxiliary.dtype}: cast one of them."
        )
    if primary.device != auxiliary.device:
        raise DamperError(
            f"auxiliary must be on primary's device {primary.device}, but is on {auxiliary.device}: move one of them."
        )


def check_range(name: str, value: Setting, low: float, high: float = float("inf")) -> None:
    """Refuse a setting outside [low, high] or not finite; nothing is read in a trace or from a device."""
    if torch.compiler.is_compiling() or (isinstance(value, Tensor) and not _is_on_host(value)):
        return
    if not isinstance(value, Tensor | Real) or (isinstance(value, Tensor) and value.is_complex()):
        raise DamperError(f"{name} must be a number or a tensor, but {value!r} was given: convert it first.")
    if isinstance(value, Tensor):
        outside = value[~((value >= low) & (value <= high) & value.isfinite())]
        given = outside.flatten()[:1].tolist()
    else:
        given = [] if low <= value <= high and value != float("inf") else [float(value)]
    if given:
        bounds = f"in [{low:g}, {high:g}]" if high < float("inf") else f"finite and at least {low:g}"
        raise DamperError(f"{name} must be {bounds}, but {given[0]:g} was given: choose a value within these bounds.")


def _is_on_host(tensor: Tensor) -> bool:
    """Whether its values can be read: no device must be waited for, and no transform of ``torch.func`` hides them."""
    return tensor.is_cpu and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is none of the choices."""
    if value not in choices:
        known = " or ".join(map(repr, choices))
        raise DamperError(f"{name} must be {known}, but {value!r} was given: choose one of them.")


def check_flag(name: str, value: bool) -> None:
    """Refuse what is neither True nor False: most words and numbers would count as True."""
    if not isinstance(value, bool):
        raise DamperError(f"{name} must be True or False, the same for all agents, but {value!r} was given.")


def broadcastable(name: str, value: Setting, like: Tensor) -> Setting:
    """A setting ready to meet the per-agent numbers ``like`` (shape [...]): floats pass, tensors must broadcast."""
    if not isinstance(value, Tensor):
        return value
    try:
        fits = torch.broadcast_shapes(value.shape, like.shape) == like.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise DamperError(
            f"{name} must broadcast over the leading axes {tuple(like.shape)}, but has shape {tuple(value.shape)}: "
            "give one value per agent."
        )
    # Without non_blocking a setting left on the CPU would make every call wait for the device.
    return value.to(device=like.device, dtype=like.dtype, non_blocking=True)
