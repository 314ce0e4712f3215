"""Bloop: project the auxiliary off a moving average of the primary."""

from __future__ import annotations

import torch
from torch import Tensor

from damper._checks import Setting
from damper.errors import DamperError
from damper.rules._settings import broadcastable, check_pair
from damper.rules._two_vector import along, measure, working


def bloop(
    primary: Tensor,
    auxiliary: Tensor,
    state: Tensor | None = None,
    *,
    rate: Setting = 0.1,
    weight: Setting = 1.0,
) -> tuple[Tensor, Tensor]:
    """``g = g_R + λ (g_T − ⟨g_T, m⟩/‖m‖² m)``, then ``m ← (1 − rate) m + rate g_R``.

    Hsieh et al., "Careful with that Scalpel: Improving Gradient Surgery with an EMA", ICML 2024,
    Algorithm 1: the projection uses the old average. At the first step (state None, or zeros) it
    uses ``g_R`` instead.

    Args:
        primary: ``g_R``, [..., n].
        auxiliary: ``g_T``, likewise.
        state: m after the previous step, [..., n]; None at the first. Moved to the gradients'
            device and dtype.
        rate: rate of the moving average, in [0, 1]: a float, or a tensor that broadcasts over the
            leading axes.
        weight: λ ≥ 0, likewise.

    Returns:
        The combined gradient and the new m. A primary that is not finite leaves m as it was.
    """
    check_pair(primary, auxiliary)
    g_R = working(primary)
    finite = g_R.isfinite().all(-1)
    m = _average(state, g_R)
    m = torch.where((finite & (m == 0).all(-1)).unsqueeze(-1), g_R, m)
    measured = measure(m, working(auxiliary))
    s = broadcastable("weight", weight, measured.stats.c) * measured.stats.n_T
    g = g_R + (
        along(measured.primary, -s * measured.stats.c, g_R.dtype)
        + along(measured.auxiliary, s, g_R.dtype)
    )
    combined = torch.where((measured.usable & finite).unsqueeze(-1), g, g_R).to(primary.dtype)
    rate = broadcastable("rate", rate, measured.stats.c, high=1.0)
    rate = rate.to(m.dtype).unsqueeze(-1) if isinstance(rate, Tensor) else rate
    return combined, torch.where(finite.unsqueeze(-1), (1 - rate) * m + rate * g_R, m)


def _average(state: Tensor | None, g_R: Tensor) -> Tensor:
    if state is None:
        return torch.zeros_like(g_R)
    if not isinstance(state, Tensor) or state.shape != g_R.shape:
        given = (
            f"has {tuple(state.shape)}"
            if isinstance(state, Tensor)
            else f"is of type {type(state).__name__}"
        )
        raise DamperError(
            f"state must have primary's shape {tuple(g_R.shape)}, but {given}: pass what the "
            "previous "
            "call returned, or None to start afresh."
        )
    return state.to(g_R)  # a state loaded from a file may be on another device
