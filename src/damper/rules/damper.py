"""DAMPER: remove what opposes the primary, scale by the primary's norm, add."""

from __future__ import annotations

from torch import Tensor

from damper._checks import Setting
from damper.rules._magnitude import magnitude
from damper.rules._two_vector import PairStats, two_vector_rule


@two_vector_rule()
def damper(stats: PairStats, eta: Setting = 1.0) -> tuple[Tensor, Tensor]:
    r"""``g = g_R + (s_η/n_T) g̃_T``, ``g̃_T = g_T − min(b, 0)/n_R² · g_R``, ``s_η = n_R q^(1−η)``.

    Ko, Goo and Hong, "DAMPER: Return-Prioritized Gradient Control for Smooth Policies", Algorithm 1
    and Lemma 1. ``b = ⟨g_R, g_T⟩``, ``q = min(n_T/n_R, 1)``. The denominator is the norm before the
    projection, so a conflicting auxiliary enters with less than ``s_η``. Where either norm is zero,
    below float32's smallest normal number or not finite, the result is ``g_R``.

    Settings:
        eta: η in [0, 1], how strongly to smooth: 1 gives the auxiliary the primary's norm, 0 only
            caps its own norm at the primary's. A float, or a tensor that broadcasts over the
            leading axes.
    """
    s = magnitude(stats, eta)
    return -s * stats.c.clamp(max=0.0), s


def combine(primary: Tensor, auxiliary: Tensor, eta: Setting = 1.0) -> Tensor:
    r"""DAMPER's direction ``g = g_R + (n_R/n_T) q^(1−η) g̃_T`` for gradients of shape ``[..., n]``.

    Args:
        primary: ``g_R``, the gradient of the actor's own loss, flattened; leading axes are
            independent agents.
        auxiliary: ``g_T``, the temporal gradient, of the same shape and dtype.
        eta: η in [0, 1], a float or a tensor that broadcasts over the leading axes. Floats and CPU
            tensors are checked; a device tensor is not read, so that the call never waits for the
            device.

    Returns:
        The combined gradient, of primary's shape and dtype. ``⟨g, g_R⟩ ≥ n_R²`` and
        ``‖g − g_R‖ ≤ n_R`` hold.
    """
    return damper(primary, auxiliary, eta=eta)
