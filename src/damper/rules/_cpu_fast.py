"""A two-vector rule on one agent's gradients on a CPU, with few passes over memory.

The allocator returns large temporaries to the system after every call, and mapping their pages
again takes longer than the arithmetic. So nothing is flattened, and sums run over float64 copies of
small pieces. Use it only in code that always runs eagerly: ``backward``, which has one agent, and
the engine's uncompiled update. It agrees with the rules themselves up to rounding; they give an
agent the same result in a batch as alone, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from damper.rules._report import GradientReport, apply_reported
from damper.rules._two_vector import Coefficients, PairStats, Rule

CHUNK_SIZE = 32768  # entries; their float64 copies stay in a processor's cache
SAFE_NORM = 1e15  # norms between 1/SAFE_NORM and SAFE_NORM need no care with float32's range


def apply_single(
    rule: Rule, primary: Sequence[Tensor], auxiliary: Sequence[Tensor], **settings: Any
) -> tuple[list[Tensor], GradientReport] | None:
    """Apply a two-vector rule to one agent's float32 CPU gradients and report.

    Returns None where it does not apply: other rules, dtypes, layouts or devices, per-agent
    settings, norms outside 1e-15 to 1e15, or gradients inside a ``torch.func`` transform.

    Args:
        rule: any rule.
        primary: ``g_R``, one tensor per parameter.
        auxiliary: ``g_T``, likewise.
        **settings: the rule's settings, and the auxiliary loss for a rule that reads it.
    """
    coefficients: Coefficients | None = getattr(rule, "coefficients", None)
    several = any(isinstance(value, Tensor) and value.ndim > 0 for value in settings.values())
    if coefficients is None or several or not _are_simple((*primary, *auxiliary)):
        return None
    return _apply_ordinary(rule, coefficients, primary, auxiliary, settings)


# torch.compile would recompile it for every norm. torch.compiler.disable would import Dynamo with
# this module, which takes a second; this decorator imports it at the first call, by when an
# optimiser has already done so.
@_disable_dynamo
def _apply_ordinary(
    rule: Rule,
    coefficients: Coefficients,
    primary: Sequence[Tensor],
    auxiliary: Sequence[Tensor],
    settings: Mapping[str, Any],
) -> tuple[list[Tensor], GradientReport] | None:
    """``apply_single``; None for a norm out of range or hidden by a ``torch.func`` transform."""
    tensors = [value for value in settings.values() if isinstance(value, Tensor)]
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, (*primary, *auxiliary, *tensors))):
        return None
    n_R, n_T, c = _measure(primary, auxiliary)
    if not (1.0 / SAFE_NORM < n_R < SAFE_NORM and 1.0 / SAFE_NORM < n_T < SAFE_NORM):
        return None
    r, s = map(float, coefficients(PairStats(*_tensors(torch.float64, n_R, n_T, c)), **settings))
    kept = 1.0 if getattr(rule, "keeps_primary", True) else 0.0
    scale, f_T = kept + _factor(r, n_R), _factor(s, n_T)
    scaled = list(primary) if scale == 1.0 else torch._foreach_mul(list(primary), scale)
    combined = list(torch._foreach_add(scaled, list(auxiliary), alpha=f_T))
    cosine, norm_ratio, weight = _tensors(torch.float32, c, n_T / n_R, s / n_R)
    conflict, guard = _tensors(torch.bool, c < 0, False)
    return combined, GradientReport(
        cosine=cosine, norm_ratio=norm_ratio, conflict=conflict, weight=weight, guard=guard
    )


def apply_rows(
    rule: Rule, primary: Tensor, auxiliary: Tensor, **settings: Any
) -> tuple[Tensor, GradientReport] | None:
    """``apply_single`` for every row of ``[P, n]``; the rule itself where norms are out of range.

    Returns None for other rules, dtypes and devices. Settings, and the auxiliary loss
    among them, are floats or ``[P]``. Rows are independent.
    """
    if not hasattr(rule, "coefficients") or not _are_simple([primary]):
        return None
    combined, reports = torch.empty_like(primary), []
    for i, (g_R, g_T) in enumerate(zip(primary.unbind(), auxiliary.unbind(), strict=True)):
        own = {
            name: value[i] if isinstance(value, Tensor) else value
            for name, value in settings.items()
        }
        row, report = apply_single(rule, [g_R], [g_T], **own) or apply_reported(
            rule, g_R[None], g_T[None], None, False, **own
        )
        combined[i] = row[0]
        reports.append(report)
    fields = (name for name in GradientReport._fields if name != "state")
    return combined, GradientReport(
        **{
            name: torch.stack([getattr(report, name).reshape(()) for report in reports])
            for name in fields
        }
    )


def _are_simple(gradients: Sequence[Tensor]) -> bool:
    return all(
        g.is_cpu and g.dtype is torch.float32 and g.layout is torch.strided for g in gradients
    )


def _measure(primary: Sequence[Tensor], auxiliary: Sequence[Tensor]) -> tuple[float, float, float]:
    """Norms and cosine, summed in float64, which holds the square of any float32."""
    rr = tt = rt = 0.0
    for g_R, g_T in zip(_pieces(primary), _pieces(auxiliary), strict=True):
        x, y = g_R.double(), g_T.double()
        rr, tt, rt = rr + x.dot(x).item(), tt + y.dot(y).item(), rt + x.dot(y).item()
    n_R, n_T = math.sqrt(rr), math.sqrt(tt)
    return n_R, n_T, min(max(rt / (n_R * n_T or 1.0), -1.0), 1.0)


def _pieces(gradients: Sequence[Tensor]) -> Iterator[Tensor]:
    """Flat pieces for sums: large gradients split, small ones concatenated."""
    small = [gradient.reshape(-1) for gradient in gradients if gradient.numel() < CHUNK_SIZE]
    large = [gradient.reshape(-1) for gradient in gradients if gradient.numel() >= CHUNK_SIZE]
    whole = [torch.cat(small), *large] if small else large
    return (piece for gradient in whole for piece in gradient.split(CHUNK_SIZE))


def _factor(length: float, norm: float) -> float:
    """``length / norm``, clamped to float32's range."""
    largest = torch.finfo(torch.float32).max
    return min(max(length / norm, -largest), largest)


def _tensors(dtype: torch.dtype, *numbers: float) -> tuple[Tensor, ...]:
    return torch.tensor(numbers, dtype=dtype, device="cpu").unbind()
