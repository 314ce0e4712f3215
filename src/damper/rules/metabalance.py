"""MetaBalance: bring the auxiliary's norm towards the primary's, using moving averages of both."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from damper._checks import Setting
from damper.errors import DamperError
from damper.rules._settings import broadcastable, check_pair
from damper.rules._two_vector import along, measure, wide, working


class NormAverages(NamedTuple):
    """MetaBalance's memory: moving averages of both norms, [..., K] for K balanced parts."""

    m_R: Tensor
    m_T: Tensor


def metabalance(
    primary: Tensor,
    auxiliary: Tensor,
    state: NormAverages | Sequence[Tensor] | None = None,
    *,
    r: Setting = 0.7,
    beta: Setting = 0.9,
    sizes: Sequence[int] | None = None,
) -> tuple[Tensor, NormAverages]:
    """``g = g_R + r (m_R/m_T) g_T + (1 − r) g_T`` with ``m ← β m + (1 − β) n`` for both norms.

    He et al., "MetaBalance: Improving Multi-Task Recommendations via Adapting Gradient Magnitudes
        of Auxiliary Tasks",
    WWW 2022. Averages start at 0, which cancels in their ratio: the first step takes ``n_R/n_T``.

    Args:
        primary: ``g_R``, [..., n].
        auxiliary: ``g_T``, likewise.
        state: the state that the previous step returned, or that pair of tensors loaded from a
            file; None at the first.
        r: relaxation in [0, 1]: 0 leaves the auxiliary as it is, 1 gives it the primary's norm. A
            float, or a tensor that broadcasts over the leading axes.
        beta: β of the moving averages, in [0, 1], likewise.
        sizes: lengths of consecutive parts to balance separately, such as the parameter tensors (as
            the released code does); None balances the gradient as a whole.

    Returns:
        The combined gradient and the new averages. A part that cannot be combined keeps its
        averages.
    """
    check_pair(primary, auxiliary)
    parts = _check_sizes(sizes, primary.shape[-1])
    shape = (*primary.shape[:-1], len(parts))
    state = _averages(state, shape, primary)
    gradients = zip(
        working(primary).split(parts, -1), working(auxiliary).split(parts, -1), strict=True
    )
    averages = zip(state.m_R.unbind(-1), state.m_T.unbind(-1), strict=True)
    balanced = [
        _balance(*pair, *old, r, beta) for pair, old in zip(gradients, averages, strict=True)
    ]
    combined, m_R, m_T = zip(*balanced, strict=True)
    return torch.cat(combined, -1).to(primary.dtype), NormAverages(
        torch.stack(m_R, -1), torch.stack(m_T, -1)
    )


def _balance(
    g_R: Tensor, g_T: Tensor, m_R: Tensor, m_T: Tensor, r: Setting, beta: Setting
) -> tuple[Tensor, Tensor, Tensor]:
    """One part's combined gradient and new averages."""
    measured = measure(g_R, g_T)
    n_R, n_T, _ = measured.stats
    r, beta = (
        broadcastable(name, value, n_R, high=1.0) for name, value in (("r", r), ("beta", beta))
    )
    m_R = torch.where(measured.usable, beta * m_R + (1 - beta) * n_R, m_R)
    m_T = torch.where(measured.usable, beta * m_T + (1 - beta) * n_T, m_T)
    # n_T/m_T is bounded by 1/(1 − β), while m_R/m_T may leave any dtype's range.
    s = r * m_R * (n_T / torch.where(m_T > 0, m_T, 1.0)) + (1 - r) * n_T
    g = g_R + along(measured.auxiliary, s, g_R.dtype)
    return torch.where(measured.usable.unsqueeze(-1), g, g_R), m_R, m_T


def _averages(
    state: Sequence[Tensor] | None, shape: tuple[int, ...], primary: Tensor
) -> NormAverages:
    if state is None:
        zeros = torch.zeros(shape, dtype=wide(primary), device=primary.device)
        return NormAverages(zeros, zeros)
    pair = (
        isinstance(state, tuple | list)
        and len(state) == 2
        and all(isinstance(m, Tensor) for m in state)
    )
    if not pair or any(m.shape != shape for m in state):
        given = (
            f"holds {' and '.join(str(tuple(m.shape)) for m in state)}"
            if pair
            else f"is a {type(state).__name__}"
        )
        raise DamperError(
            f"state must hold two averages of shape {shape}, but {given}: "
            "pass what the previous call returned, or None to start afresh."
        )
    # A state loaded from a file may be on another device.
    return NormAverages(*(m.to(primary.device, wide(primary)) for m in state))


def _check_sizes(sizes: Sequence[int] | None, n: int) -> list[int]:
    try:
        parts = [n] if sizes is None else [operator.index(size) for size in sizes]
    except (TypeError, ValueError):
        wanted = "a list of whole numbers, one per part"
        raise DamperError(
            f"sizes must be {wanted}, but {sizes!r} was given: use [p.numel() for p in parameters]."
        ) from None
    if min(parts, default=0) < 1 or sum(parts) != n:
        raise DamperError(
            f"sizes must be positive and add up to the gradient's length {n}, but {parts} was "
            "given: "
            "use [p.numel() for p in parameters]."
        )
    return parts
