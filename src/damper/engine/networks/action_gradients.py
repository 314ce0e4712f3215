"""A critic's field of action gradients and its curvature, written out layer by layer.

A critic of L hidden layers is ``z_1 = x W_1 + b_1``, ``h_l = f(z_l)``, ``z_{l+1} = h_l W_{l+1} + b_{l+1}`` and
``q = h_L w + b``. Its derivatives by the action are then products and sums like the critic itself, and a loss of them
needs to be differentiated only once, by the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from damper.activations import ACTIVATIONS


def field_inputs(observations: Sequence[Tensor], action: Tensor) -> Tensor:
    """``[P, R, d + A]``: one action at each of some observations, all rows in one piece."""
    return torch.cat([torch.cat((obs, action), -1) for obs in observations], -2)


def of_twins(gradient: Tensor, curvature: Tensor, count: int) -> tuple[list[Tensor], Tensor]:
    """The field of 2P networks by agent: at each of ``count`` observations ``[P, 2, B, A]``, and ``[P, 2, B]``."""
    return list(gradient.unflatten(0, (-1, 2)).chunk(count, -2)), curvature.unflatten(0, (-1, 2))


def action_field(
    layers: Sequence[tuple[Tensor, Tensor]], activation: str, x: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    r"""``g = ∇ₐq`` at every row of x, ``[M, R, A]``, and ``vᵀ∇²ₐₐq v`` at the first B rows, ``[M, B]``.

    Forwards go x and, along ``a + t v``, its tangents: ``z_1' = v W_1[a]``, ``h_l' = f'(z_l) z_l'`` and
    ``z_{l+1}' = h_l' W_{l+1}``, where ``W_1[a]`` are the actions' rows. Backwards go the slopes by the hidden units,
    ``u_L = w`` and ``u_{l-1} = (u_l f'(z_l)) W_lᵀ``, the last of them ``g = (u_1 f'(z_1)) W_1[a]ᵀ``. The second
    derivative along the line gathers what each layer's bend adds: ``vᵀ∇²ₐₐq v = Σ_l u_l · (f''(z_l) z_l'²)``.

    Args:
        layers: weights ``[M, in, out]`` and biases ``[M, 1, out]`` of M networks, the value's own last.
        activation: f.
        x: inputs ``[M, R, d + A]``, observations before actions.
        v: directions ``[M, B, A]`` at x's first B rows.
    """
    f, (*hidden, (w, _)) = ACTIVATIONS[activation], layers
    R, (B, A) = x.shape[1], v.shape[1:]
    slopes, bends = [], []
    h, dh = x, F.pad(v, (x.shape[-1] - A, 0))
    for W, b in hidden:
        # Tangents are more rows of the same product.
        z, dz = torch.bmm(torch.cat((h, dh), 1), W).split((R, B), 1)
        z = z + b
        h, slope = f.with_grad(z)
        dh = slope[:, :B] * dz
        slopes.append(slope)
        bends.append(f.second_derivative(z[:, :B]) * dz.square())
    u, curvature = w.mT, torch.zeros_like(v[..., 0])
    for i in reversed(range(len(hidden))):
        W = hidden[i][0] if i else hidden[i][0][:, -A:]
        curvature = curvature + (u[:, :B] * bends[i]).sum(-1)
        u = torch.bmm(u * slopes[i], W.mT)
    return u, curvature
