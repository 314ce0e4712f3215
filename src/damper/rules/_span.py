"""Rules as two lengths: a rule in the span of the two gradients is ``g = g_R + r û_R + s û_T``.

Such a rule reads three numbers per agent (two norms and a cosine) and returns two, whatever the number of parameters:
the lengths it adds along the unit vectors ``û_R`` and ``û_T``. Lengths, unlike coefficients on the raw gradients, stay
within range at any scale. This module measures the three, applies the two, and falls back to ``g_R`` where there is
nothing to combine. No branch reads a tensor's value: rules run in CUDA graphs, ``torch.compile`` and ``vmap``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from damper.errors import DamperError

TINY = torch.finfo(torch.float32).tiny  # a norm below this carries no direction worth keeping

Setting = float | Tensor


class Gram(NamedTuple):
    """What a rule may know of the pair: norms and cosine, one number per agent, in float64 where the device has it.

    An unusable norm (zero, below float32's smallest normal number, or not finite) reads 0, and its cosine 0.
    """

    n_R: Tensor
    n_T: Tensor
    c: Tensor


class Unit(NamedTuple):
    """A gradient over its largest entry, with the norm left: ``û = x / k`` and ``n = m k`` without overflow."""

    x: Tensor
    k: Tensor
    m: Tensor


class Measured(NamedTuple):
    """The pair's numbers, its directions, and where combining makes sense."""

    gram: Gram
    primary: Unit
    auxiliary: Unit
    usable: Tensor


Lengths = Callable[..., tuple[Setting, Setting]]
Rule = Callable[..., Any]


def wide(tensor: Tensor) -> torch.dtype:
    """The dtype for per-agent scalars: float64, except on devices that have none."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def check_pair(primary: Tensor, auxiliary: Tensor) -> None:
    """Refuse what no rule can combine."""
    for name, gradient in (("primary", primary), ("auxiliary", auxiliary)):
        if not isinstance(gradient, Tensor):
            raise DamperError(f"{name} must be a tensor, not {type(gradient).__name__}: wrap it in torch.as_tensor.")
        if not gradient.is_floating_point():
            raise DamperError(f"{name} must have a floating-point dtype, but has {gradient.dtype}: cast it first.")
        if gradient.ndim == 0:
            raise DamperError(f"{name} must have at least one axis, [..., n], but is a scalar: flatten the gradient.")
    if primary.shape != auxiliary.shape:
        raise DamperError(
            f"auxiliary must have primary's shape {tuple(primary.shape)}, but has {tuple(auxiliary.shape)}: "
            "flatten both gradients over the same parameters."
        )
    if primary.dtype != auxiliary.dtype:
        raise DamperError(f"auxiliary must have primary's dtype {primary.dtype}, but has {auxiliary.dtype}.")
    if primary.device != auxiliary.device:
        raise DamperError(f"auxiliary must be on primary's device {primary.device}, but is on {auxiliary.device}.")


def is_readable(value: Any) -> bool:
    """Whether a setting's value may be looked at without waiting for a device or breaking a trace."""
    if torch.compiler.is_compiling():
        return False
    if not isinstance(value, Tensor):
        return True
    return value.device.type == "cpu" and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def check_range(name: str, value: Setting, low: float, high: float = float("inf")) -> None:
    """Refuse a setting outside [low, high]; a device tensor is not read."""
    if not is_readable(value):
        return
    values = torch.as_tensor(value)
    inside = (values >= low) & (values <= high)
    if not bool(inside.all()):
        bounds = f"in [{low:g}, {high:g}]" if high < float("inf") else f"at least {low:g}"
        given = float(values[~inside].flatten()[0])
        raise DamperError(f"{name} must be {bounds}, but {given:g} was given.")


def spread(name: str, value: Setting, like: Tensor) -> Setting:
    """A setting ready to meet the per-agent numbers ``like`` (shape [...]): floats pass, tensors must broadcast."""
    if not isinstance(value, Tensor):
        return value
    try:
        fits = torch.broadcast_shapes(value.shape, like.shape) == like.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise DamperError(
            f"{name} must broadcast over the leading axes {tuple(like.shape)}, but has shape {tuple(value.shape)}."
        )
    return value.to(device=like.device, dtype=like.dtype)


def unit(gradient: Tensor) -> Unit:
    """Scale by the largest entry before taking the norm."""
    m = gradient.abs().amax(-1)
    x = gradient / torch.where(m > 0, m, 1.0).unsqueeze(-1)
    return Unit(x, x.square().sum(-1).sqrt(), m)


def measure(primary: Tensor, auxiliary: Tensor) -> Measured:
    """Norms and cosine of the pair at any scale (inputs in float32 or float64)."""
    dtype, largest = wide(primary), torch.finfo(primary.dtype).max
    R, T = unit(primary), unit(auxiliary)
    n_R, n_T = (u.m.to(dtype) * u.k.to(dtype) for u in (R, T))
    usable_R, usable_T = (n_R >= TINY) & (n_R <= largest), (n_T >= TINY) & (n_T <= largest)
    cosine = (R.x * T.x).sum(-1).to(dtype) / (R.k.to(dtype) * T.k.to(dtype))
    gram = Gram(
        torch.where(usable_R, n_R, 0.0),
        torch.where(usable_T, n_T, 0.0),
        torch.where(usable_R & usable_T, cosine.clamp(-1.0, 1.0), 0.0),
    )
    return Measured(gram, R, T, usable_T & (n_R <= largest))


def along(direction: Unit, length: Setting) -> Tensor:
    """``length · û``."""
    dtype = wide(direction.x)
    k = torch.where(direction.k > 0, direction.k, 1.0).to(dtype)
    factor = torch.as_tensor(length, dtype=dtype, device=k.device) / k
    return factor.to(direction.x.dtype).unsqueeze(-1) * direction.x


def working(gradient: Tensor) -> Tensor:
    """Half precision accumulates in float32."""
    return gradient.float() if gradient.dtype in (torch.float16, torch.bfloat16) else gradient


def span_rule(*, keeps_primary: bool = True) -> Callable[[Lengths], Rule]:
    """Turn ``(gram, **settings) -> (r, s)`` into ``(primary, auxiliary, **settings) -> [g_R] + r û_R + s û_T``.

    A rule that keeps the primary never touches its bits where ``r`` and ``s`` are zero; one that rescales it
    (``keeps_primary=False``) returns the whole length along ``û_R``.
    """

    def decorate(lengths: Lengths) -> Rule:
        def rule(primary: Tensor, auxiliary: Tensor, **settings: Any) -> Tensor:
            check_pair(primary, auxiliary)
            g_R = working(primary)
            measured = measure(g_R, working(auxiliary))
            r, s = lengths(measured.gram, **settings)
            g = along(measured.primary, r) + along(measured.auxiliary, s)
            g = g_R + g if keeps_primary else g
            return torch.where(measured.usable.unsqueeze(-1), g, g_R).to(primary.dtype)

        functools.update_wrapper(rule, lengths)
        own = list(inspect.signature(lengths).parameters.values())[1:]
        pair = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("primary", "auxiliary")]
        rule.__signature__ = inspect.Signature(pair + [p.replace(kind=p.KEYWORD_ONLY) for p in own])  # type: ignore[attr-defined]
        rule.lengths = lengths  # type: ignore[attr-defined]
        return rule

    return decorate
