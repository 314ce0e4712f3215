"""Rules as two coefficients: in the span of the gradients, ``g = g_R + r û_R + s û_T``.

Such a rule reads three numbers per agent (two norms and a cosine) and returns two, whatever the
number of parameters: the lengths it adds along the unit vectors ``û_R`` and ``û_T``. Lengths,
unlike factors of the raw gradients, stay within range at any scale. This module measures the three,
applies the two, and falls back to ``g_R`` where there is nothing to combine. No branch reads a
tensor's value: rules run in CUDA graphs, ``torch.compile`` and ``vmap``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from damper._checks import Setting
from damper.rules._settings import check_pair

TINY = torch.finfo(torch.float32).tiny  # a norm below this carries no direction worth keeping


class PairStats(NamedTuple):
    """What a rule reads of the pair: norms and cosine, per agent, in float64 if the device has it.

    An unusable norm (zero, below float32's smallest normal number, or not finite) is 0 here, and so
    is the cosine.
    """

    n_R: Tensor
    n_T: Tensor
    c: Tensor


class Unit(NamedTuple):
    """A gradient as ``g = m x`` with ``k = ‖x‖``: direction ``û = x / k``, norm ``n = m k``.

    ``x`` is in the dtype ``wide``, where any float32 can be squared, and m is 1; a gradient already
    in that dtype is divided by its largest entry, m.
    """

    x: Tensor
    k: Tensor
    m: Tensor


class Measured(NamedTuple):
    """The pair's norms, cosine and directions, and whose gradients can be combined, ``[...]``."""

    stats: PairStats
    primary: Unit
    auxiliary: Unit
    usable: Tensor


Coefficients = Callable[..., tuple[Setting, Setting]]
Rule = Callable[..., Any]


def wide(tensor: Tensor) -> torch.dtype:
    """The dtype for per-agent scalars: float64, except on devices that have none."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def unit(gradient: Tensor) -> Unit:
    """The gradient's ``Unit``."""
    broad = wide(gradient)
    if gradient.dtype != broad:
        x = gradient.to(broad)
        k = torch.linalg.vector_norm(x, dim=-1)
        return Unit(x, k, torch.ones_like(k))
    m = gradient.abs().amax(-1)
    x = gradient / torch.where(m > 0, m, 1.0).unsqueeze(-1)
    return Unit(x, torch.linalg.vector_norm(x, dim=-1), m)


def measure(primary: Tensor, auxiliary: Tensor) -> Measured:
    """Norms and cosine of the pair at any scale (inputs in float32 or float64)."""
    largest = torch.finfo(primary.dtype).max
    R, T = unit(primary), unit(auxiliary)
    n_R, n_T = R.m * R.k, T.m * T.k
    usable_R, usable_T = (n_R >= TINY) & (n_R <= largest), (n_T >= TINY) & (n_T <= largest)
    # Products in float64: near |c| = 1 a rounding error of ε in the cosine is one of √ε in the
    # angle.
    cosine = (R.x * T.x).sum(-1) / (R.k * T.k)
    stats = PairStats(
        torch.where(usable_R, n_R, 0.0),
        torch.where(usable_T, n_T, 0.0),
        torch.where(usable_R & usable_T, cosine.clamp(-1.0, 1.0), 0.0),
    )
    return Measured(stats, R, T, usable_T & (n_R <= largest))


def along(direction: Unit, length: Setting, dtype: torch.dtype) -> Tensor:
    """``length · û``, clamped to the range of the gradient's dtype."""
    largest, widest = torch.finfo(dtype).max, torch.finfo(direction.x.dtype).max
    # The factor must be finite: infinity times an entry of 0 would be NaN.
    factor: Tensor = (length / torch.where(direction.k > 0, direction.k, 1.0)).clamp(
        -widest, widest
    )
    entries = factor.unsqueeze(-1) * direction.x
    return (entries if direction.x.dtype == dtype else entries.clamp(-largest, largest)).to(dtype)


def working(gradient: Tensor) -> Tensor:
    """The gradient in the dtype to compute in: half precision becomes float32."""
    return gradient.float() if gradient.dtype in (torch.float16, torch.bfloat16) else gradient


def two_vector_rule(*, keeps_primary: bool = True) -> Callable[[Coefficients], Rule]:
    """Turn ``(stats, **settings) -> (r, s)`` into a rule ``[g_R] + r û_R + s û_T``.

    A rule that keeps the primary leaves it unchanged, bit for bit, where ``r`` and ``s`` are zero;
    for one that rescales it (``keeps_primary=False``), ``r`` is the whole length along ``û_R``.
    """

    def decorate(coefficients: Coefficients) -> Rule:
        def explained(
            primary: Tensor, auxiliary: Tensor, **settings: Any
        ) -> tuple[Tensor, PairStats, Setting]:
            check_pair(primary, auxiliary)
            g_R = working(primary)
            measured = measure(g_R, working(auxiliary))
            r, s = coefficients(measured.stats, **settings)
            R, T = measured.primary, measured.auxiliary
            g = along(R, r, g_R.dtype) + along(T, s, g_R.dtype)
            g = g_R + g if keeps_primary else g
            combined = torch.where(measured.usable.unsqueeze(-1), g, g_R).to(primary.dtype)
            return combined, measured.stats, s

        def rule(primary: Tensor, auxiliary: Tensor, **settings: Any) -> Tensor:
            return explained(primary, auxiliary, **settings)[0]

        for function in (explained, rule):
            # Every rule needs its own code object: Dynamo keeps eight compiled versions of each.
            function.__code__ = function.__code__.replace()
        functools.update_wrapper(rule, coefficients)
        own = list(inspect.signature(coefficients).parameters.values())[1:]
        pair = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for name in ("primary", "auxiliary")
        ]
        rule.__signature__ = inspect.Signature(pair + [p.replace(kind=p.KEYWORD_ONLY) for p in own])  # type: ignore[attr-defined]
        rule.explained = explained  # type: ignore[attr-defined]
        rule.coefficients, rule.keeps_primary = coefficients, keeps_primary  # type: ignore[attr-defined]
        return rule

    return decorate
